"""A lab for tests: runs client programs and inspects the hosts."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from conftest import Result, Snowmelt, wait_for
from images import bytes_below

from common.paths import SNOWMELT

PYTHON = Path(__file__).resolve().parents[2] / "python"

# As any S3 client in the lab, with the variables that `lab run` sets.
UPLOAD = """
import os, sys
from pyarrow import fs
store = fs.S3FileSystem(
    access_key=os.environ["AWS_ACCESS_KEY_ID"],
    secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    endpoint_override=os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"),
    scheme="http",
)
bucket = os.environ["SNOWMELT_LAB_STORE"].removeprefix("s3://")
fs.copy_files(
    sys.argv[1], f"{bucket}/t", source_filesystem=fs.LocalFileSystem(), destination_filesystem=store
)
"""


@dataclass
class Lab:
    """A running lab."""

    snowmelt: Snowmelt

    def start(self, code: str) -> "subprocess.Popen[str]":
        """A Python program as a client of the lab."""
        text = "import json\nimport snowmelt as sm\n" + textwrap.dedent(code)
        return subprocess.Popen(
            [str(SNOWMELT), "lab", "run", "--", sys.executable, "-c", text],
            env=self.snowmelt.environ() | {"PYTHONPATH": str(PYTHON)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def python(self, code: str, timeout: float = 120) -> Any:
        """The output of a program, a JSON value."""
        program = self.start(code)
        out, err = program.communicate(timeout=timeout)
        assert program.returncode == 0, err
        return json.loads(out)

    def refused(self, program: "subprocess.Popen[str]", timeout: float = 120) -> str:
        """The error of a program that fails."""
        _, err = program.communicate(timeout=timeout)
        assert program.returncode != 0
        return err

    def command(self, *words: object) -> Result:
        return self.snowmelt.run("lab", *words)

    def client(self, *words: object) -> str:
        """The output of a command of the command line, as a client of the lab."""
        return self.command("run", "--", SNOWMELT, *words).succeeded().out

    def rows(self, sql: str, *options: object) -> list[dict[str, Any]]:
        """The answer of a query."""
        out = self.client("sql", sql, *options, "-o", "json")
        return [json.loads(line) for line in out.splitlines()]

    def client_start(self, *words: object) -> "subprocess.Popen[str]":
        """A command of the command line that runs as a client of the lab."""
        return self.snowmelt.start("lab", "run", "--", SNOWMELT, "--errors", "json", *words)

    def bursts(self) -> list[dict[str, Any]]:
        """The bursts that control knows."""
        return list(json.loads(self.client("burst", "ls", "-o", "json")))

    def upload(self, folder: Path) -> None:
        """Writes the files of a folder to the table `t` in the store."""
        self.command("run", "--", sys.executable, "-c", UPLOAD, folder).succeeded()

    def fail(self, host: str, how: str = "kill") -> None:
        self.command("fail", host, "--how", how).succeeded()

    def break_connections(self, control: str, host: str) -> None:
        """Ends the connections that control has opened to a host, and not those of its reports."""
        listed = json.loads(self.client("hosts", "-o", "json"))
        [address] = [one["address"] for one in listed if one["name"] == host]
        to, _, port = address.rpartition(":")
        words = ("ss", "-K", "dst", to, "dport", "=", f":{port}")
        self.command("exec", control, "--", *words).succeeded()

    def heal(self, host: str) -> None:
        """Heals the host, and waits until control has it in its list."""
        self.command("heal", host).succeeded()
        # Control itself may be the host that starts again.
        wait_for("control", lambda: not self.command("run", "--", SNOWMELT, "hosts").code)
        wait_for(f"{host} to join", lambda: host in self.ranks())

    def ranks(self) -> dict[str, int]:
        """The number of functions on each host, from control."""
        shown = self.client("hosts", "-o", "json")
        return {host["name"]: host["facts"]["ranks"] for host in json.loads(shown)}

    def states(self) -> list[dict[str, Any]]:
        [lab] = json.loads(self.command("ls", "-o", "json").succeeded().out)
        return list(lab["hosts"])

    def services(self) -> dict[str, dict[str, Any]]:
        """The registry and the store, by their names."""
        [lab] = json.loads(self.command("ls", "-o", "json").succeeded().out)
        return {service["name"]: service for service in lab["services"]}

    def log(self, host: str) -> str:
        """The log of a host's node, or of a service."""
        found = (self.snowmelt.folder / "run" / "labs").glob(f"*/{host}/log")
        return "".join(file.read_text() for file in found)

    def sent(self, name: str) -> int:
        """Bytes that a host or service has sent over its link so far."""
        shown = self.command("exec", name, "--", "cat", "/proc/self/net/dev").succeeded().out
        [line] = [line for line in shown.splitlines() if line.strip().startswith("eth0:")]
        return int(line.partition(":")[2].split()[8])

    def cached(self, host: str) -> int:
        """Bytes of the blocks of images that a host has cached."""
        [blocks] = (self.snowmelt.folder / "state" / "labs").glob(f"*/{host}/blocks")
        return bytes_below(blocks)

    def job_devices(self) -> list[str]:
        """Devices of jobs on all hosts."""
        found = []
        for state in self.states():
            shown = self.command("exec", state["name"], "--", "ip", "-o", "link").succeeded()
            names = (line.split(": ")[1].split("@")[0] for line in shown.out.splitlines())
            found += [f"{state['name']} {name}" for name in names if name.startswith("snm")]
        return found

    def wait_until_clean(self) -> None:
        wait_for("the devices of jobs to go", lambda: not self.job_devices())


def write_numbers(folder: Path, rows: int, files: int) -> None:
    """A table with the numbers from 0 on in its column `a`."""
    each = rows // files
    for part in range(files):
        table = pa.table({"a": range(part * each, (part + 1) * each)})
        pq.write_table(table, folder / f"{part}.parquet", compression="none")


@contextmanager
def lab(snowmelt: Snowmelt, hosts: int, *options: object) -> Iterator[Lab]:
    """A lab that is removed after the block."""
    snowmelt.run("lab", "up", "--hosts", hosts, *options).succeeded()
    try:
        yield Lab(snowmelt)
    finally:
        snowmelt.run("lab", "down").succeeded()
