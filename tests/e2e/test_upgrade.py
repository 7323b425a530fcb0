"""Programs of several versions beside each other, and records that an earlier version wrote."""

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cluster import join_token
from conftest import Snowmelt, short_folder, wait_for
from controls import EtcdCluster, controls, free_port, replaced
from platform_records import Made, ends, seen

from common.paths import SNOWMELT

STATES = Path(__file__).with_name("states")
# Programs of an earlier version, if there are any: what they wrote, they read again.
OLDER = os.environ.get("SNOWMELT_E2E_OLDER")
# Records that begin with these change, or end, while a platform runs.
CHANGING = ("calls/", "call-entries/", "jobs/", "key-uses/", "quota-days/", "hosts/tokens/")

CODE = """import time

def handler(event):
    time.sleep(event)
    return event
"""


@pytest.fixture
def platform(machine: None) -> Iterator[Snowmelt]:
    with short_folder() as folder:
        control = Snowmelt(folder)
        yield control
        if (folder / "state/snowmelt.sock").exists():
            control.run("down", "--grace", "0s")


def raw(control: Snowmelt, etcd: EtcdCluster, prefix: str) -> dict[str, Any]:
    """The records of a state folder, by way of etcd."""
    url = f"{etcd.at(etcd.clients)}/{prefix}"
    state = control.environ()["SNOWMELT_STATE"]
    folder = control.folder / prefix
    copy = ["store", "copy", "--from", state, "--to", url, "--folder", folder]
    control.run(*copy).succeeded()
    get = ["etcdctl", f"--endpoints=127.0.0.1:{etcd.clients[0]}", "get", "--prefix", "-w", "json"]
    done = subprocess.run(
        [*get, f"{prefix}/keys/"], check=True, capture_output=True, env={"ETCDCTL_API": "3"}
    )
    return dict(_values(json.loads(done.stdout)["kvs"], prefix, folder / "records"))


def _values(entries: list[dict[str, str]], prefix: str, long: Path) -> Iterator[tuple[str, Any]]:
    from base64 import b64decode

    for entry in entries:
        value = b64decode(entry.get("value", ""))
        if value.startswith(b"\0file "):
            value = (long / value.removeprefix(b"\0file ").decode()).read_bytes()
        yield b64decode(entry["key"]).decode().removeprefix(f"{prefix}/keys/"), json.loads(value)


@pytest.mark.parametrize("name", [path.name for path in sorted(STATES.glob("*.tar.xz"))])
def test_records_of_an_earlier_version_are_served_and_stay_readable_for_it(
    platform: Snowmelt, tmp_path: Path, name: str
) -> None:
    state = platform.folder / "state"
    state.mkdir(mode=0o700)
    with tarfile.open(STATES / name) as archive:
        archive.extractall(state)
    known = json.loads((state / "seen.json").read_text())
    made = Made(**known["made"])
    etcd = EtcdCluster(tmp_path, 1)
    try:
        before = raw(platform, etcd, "before")
        up(platform)
        now = json.loads(json.dumps(seen(platform, replace(made, burst=""))))
        assert now == known["seen"]
        assert ends(platform, made) == ['"late"'] * 3
        event = json.dumps("ab")
        assert json.loads(platform.run("fn", "call", "f", "--data", event).out) == "abab"
        platform.run("down").succeeded()
        after = raw(platform, etcd, "after")
    finally:
        etcd.stop()
    kept = {key for key in before if not key.startswith(CHANGING)}
    assert len(kept) >= 6, kept
    assert {key: after.get(key) for key in kept} == {key: before[key] for key in kept}
    assert after["store/format"]["needs"] <= 1
    families = {key.split("/")[0] for key in before} | {"store", "quota-days"}
    for key, record in after.items():
        assert key.split("/")[0] in families, key
        earlier = before.get(key)
        if isinstance(earlier, dict):
            assert set(earlier) <= set(record), f"{key} lacks what an earlier version reads"
    if OLDER:
        older = replace(platform, program=Path(OLDER) / "snowmelt")
        up(older)
        now = json.loads(json.dumps(seen(older, replace(made, burst=""))))
        assert now == known["seen"]
        assert ends(older, made) == ['"late"'] * 3
        older.run("down").succeeded()


def up(control: Snowmelt) -> str:
    listen = f"127.0.0.1:{free_port()}"
    control.run("up", "--listen", listen, "--name", "one").succeeded()
    return listen


def another(folder: Path, protocol: int) -> Path:
    """The program of another version: it has another build, and speaks another protocol."""
    folder.mkdir()
    for name in ("snowmelt", "snowmelt-query"):
        shutil.copy(SNOWMELT.with_name(name), folder)
    program = folder / "snowmelt"
    content = program.read_bytes()
    said = subprocess.run([str(SNOWMELT), "--version"], check=True, capture_output=True, text=True)
    build = bytes.fromhex(said.stdout.strip().rsplit("+")[-1])
    assert content.count(b"GNU\0" + build) == 1
    content = content.replace(b"GNU\0" + build, b"GNU\0" + bytes([protocol]) * len(build))
    changed, count = re.subn(
        rb"snowmelt-protocol=\d{4}", b"snowmelt-protocol=%04d" % protocol, content
    )
    assert count == 1 and len(changed) == len(content)
    program.write_bytes(changed)
    return program


@dataclass
class Cluster:
    """Control with the host `two`, whose program is replaced."""

    control: Snowmelt
    listen: str
    hosts: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, name: str, program: Path, address: str, join: str | None = None) -> None:
        command = [str(program), "node", "--control", self.listen, "--name", name]
        command += ["--address", address, *(["--join", join] if join else [])]
        state = {"SNOWMELT_STATE": str(self.control.folder / f"state-{name}")}
        self.hosts[name] = subprocess.Popen(
            command,
            env=self.control.environ() | state,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self, name: str) -> str:
        host = self.hosts.pop(name)
        host.send_signal(signal.SIGTERM)
        return host.communicate(timeout=60)[1]

    def listed(self) -> dict[str, dict[str, Any]]:
        hosts = json.loads(self.control.run("hosts", "-o", "json").succeeded().out)
        return {host["name"]: host for host in hosts}

    def version(self, name: str) -> str | None:
        host = self.listed().get(name)
        return host["facts"]["version"] if host else None


@contextmanager
def cluster(control: Snowmelt) -> Iterator[Cluster]:
    made = Cluster(control, up(control))
    try:
        yield made
    finally:
        for name in list(made.hosts):
            made.stop(name)


class Caller(threading.Thread):
    """Calls a function again and again until it is told to stop."""

    def __init__(self, control: Snowmelt) -> None:
        super().__init__()
        self.control = control
        self.stops = threading.Event()
        self.failed: list[str] = []
        self.count = 0

    def run(self) -> None:
        while not self.stops.is_set():
            done = self.control.run("fn", "call", "f", "--data", "0.2")
            self.count += 1
            if done.code != 0:
                self.failed.append(done.err)


def test_a_host_is_upgraded_without_a_failed_call(platform: Snowmelt, data: Path) -> None:
    newer = another(platform.folder / "newer", 2)
    newest = another(platform.folder / "newest", 3)
    code = platform.folder / "f.py"
    code.write_text(CODE)
    with cluster(platform) as made:
        address = f"127.0.0.1:{free_port()}"
        made.start("two", SNOWMELT, address, join_token(platform))
        wait_for("the host", lambda: made.version("two"))
        own = made.version("one")
        platform.run("fn", "deploy", "f", code, "--instances", "4").succeeded()
        callers = [Caller(platform) for _ in range(2)]
        for caller in callers:
            caller.start()
        wait_for("calls", lambda: all(caller.count > 1 for caller in callers))
        platform.run("hosts", "drain", "two", "--wait").succeeded()
        assert made.listed()["two"]["state"] == "drained"
        made.stop("two")
        # It has a certificate.
        made.start("two", newer, address)
        wait_for("the newer host", lambda: made.version("two") not in (None, own))
        platform.run("hosts", "undrain", "two").succeeded()
        # Control's own host is upgraded next: all calls are on the newer one meanwhile.
        platform.run("hosts", "drain", "one", "--wait").succeeded()
        before = sum(caller.count for caller in callers)
        wait_for("calls there", lambda: sum(caller.count for caller in callers) > before + 4)
        assert made.listed()["one"]["state"] == "drained"
        for caller in callers:
            caller.stops.set()
        for caller in callers:
            caller.join()
        assert not [failed for caller in callers for failed in caller.failed]

        burst = ["fn", "burst", "f", "-n", "2", "--data", "0"]
        lines = platform.run(*burst).succeeded().out.splitlines()
        assert [json.loads(line)["result"] for line in lines] == [0, 0]
        # Plans are those of one build: the newer host takes no part.
        query = f"select count(*) as n from '{data}/lineitem/*.parquet'"
        assert platform.rows(query, "--exchange", "hosts")[0]["n"] > 0

        made.start("three", newest, f"127.0.0.1:{free_port()}", join_token(platform))
        refused = made.hosts.pop("three")
        said = refused.communicate(timeout=60)[1]
        assert refused.returncode != 0
        assert "SM-0704" in said and "version 3 of the protocol" in said, said
        log = (platform.folder / "state/snowmelt.log").read_text()
        assert "three speaks version 3 of the protocol" in log, log


def test_a_leader_that_is_asked_to_end_lets_calls_end_and_hands_over(
    machine: None, tmp_path: Path
) -> None:
    with short_folder() as folder, controls(folder, ["one", "two"]) as made:
        one, two = made.controls.values()
        code = tmp_path / "f.py"
        code.write_text(CODE)
        one.run("fn", "deploy", "f", code).succeeded()
        made.join("three")
        wait_for("the host", lambda: '"three"' in one.run("hosts", "-o", "json").out)
        # What runs on control's own host would end with it.
        one.run("hosts", "drain", "one").succeeded()
        pid = made.status("one")["pid"]
        running = [one.start("fn", "call", "f", "--data", "3") for _ in range(2)]
        burst = one.run("fn", "burst", "f", "-n", "2", "--data", "6", "--async").succeeded()

        def runs() -> bool:
            listed = json.loads(one.run("burst", "ls", "-o", "json").succeeded().out)
            return listed[0]["state"] == "running"

        wait_for("the burst", runs)
        waiting = one.run("fn", "call", "f", "--data", "0.1", "--async").succeeded().out.strip()
        os.kill(pid, signal.SIGTERM)
        for call in running:
            assert json.loads(one.finish(call).succeeded().out) == 3
        leader, seconds = replaced(made, "one")
        print(f"replaced {seconds:.1f} s after the last call")
        assert leader == "two"
        assert two.run("fn", "result", waiting, "--wait").succeeded().out.strip() == "0.1"
        wait_for("the host", lambda: '"three"' in two.run("hosts", "-o", "json").out)
        ended = two.run("burst", "wait", burst.out.strip())
        results = [json.loads(line)["result"] for line in ended.succeeded().out.splitlines()]
        assert results == [6, 6]
