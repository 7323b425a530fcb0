"""`snowmelt lab` during a block: hosts of a cluster on this machine, with shaped links."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from .paths import BENCH, CHECKOUT, SNOWMELT


class Lab:
    """A lab that runs during the block; its control is the platform of the clients."""

    def __init__(self, folder: Path, hosts: int, link: str, memory: str, *options: str) -> None:
        self.up = ["up", "--hosts", str(hosts), "--link", link, "--memory", memory, *options]
        packages = [str(CHECKOUT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = os.environ | {
            "SNOWMELT_STATE": str(folder / "state"),
            "SNOWMELT_RUN": str(folder / "run"),
            "SNOWMELT_BIN": str(SNOWMELT),
            "SNOWMELT_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(packages),
        }
        # Processes in the networks of hosts that do not belong to the cluster, by host.
        self.others: dict[str, int] = {}

    def lab(self, *arguments: str, timeout: float = 300) -> str:
        """Runs a `snowmelt lab` command; returns its output."""
        command = [str(SNOWMELT), "lab", *arguments]
        environment = self.environment
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=timeout
        )
        return done.stdout

    def application(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        """The output of a program of `bench/applications`, run as a client of the lab."""
        program = BENCH / "applications" / f"{name}.py"
        said = self.lab("run", "--", sys.executable, str(program), *arguments)
        return [json.loads(line) for line in said.splitlines()]

    @property
    def socket(self) -> Path:
        """The socket of control's gateway."""
        [socket] = (Path(self.environment["SNOWMELT_RUN"]) / "labs").glob("*/snowmelt.sock")
        return socket

    def states(self) -> list[dict[str, Any]]:
        """The state of each host."""
        [lab] = json.loads(self.lab("ls", "-o", "json"))
        return list(lab["hosts"])

    def inside(self, host: str) -> list[str]:
        """The words of a command that runs another command in the network of a host."""
        return [str(SNOWMELT), "lab", "exec", host, "--"]

    def joined(self) -> list[str]:
        """The hosts that control has in its list."""
        said = self.lab("run", "--", str(SNOWMELT), "hosts", "-o", "json")
        return [host["name"] for host in json.loads(said)]

    def running(self) -> dict[str, int]:
        """The hosts that run, with their processes."""
        return {state["name"]: int(state["pid"]) for state in self.states() if state["runs"]}

    def processes(self) -> list[int]:
        """The processes of the hosts."""
        return list(self.running().values())

    def sent(self) -> dict[str, int]:
        """Bytes that each host has sent over its link so far, from the counter of its device."""
        everything = self.running() | self.others
        return {name: link_bytes(process)[1] for name, process in everything.items()}

    def __enter__(self) -> "Lab":
        self.lab(*self.up)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lab("down")


def link_bytes(process: int) -> tuple[int, int]:
    """Bytes received and sent by `eth0` in the network namespace of a process."""
    for line in Path(f"/proc/{process}/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "eth0":
            fields = counters.split()
            return int(fields[0]), int(fields[8])
    raise RuntimeError(f"process {process} has no link")
