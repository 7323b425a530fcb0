"""kill -9 of the spawner and of its lanes under load: typed errors, then normal operation."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN_WITHIN_S, Snowmelt, descendants, wait_for

from common.machine_state import MachineState
from common.paths import SNOWMELT

PYTHON = Path(__file__).resolve().parents[2] / "python"

# Allowed errors of requests that were running when the spawner died. SM-0601: the functions of a
# network ended before their addresses were enforced.
LOST = {"SM-0502", "SM-0520", "SM-0401", "SM-0601", "SM-0702", "SM-0705"}

# Concurrent calls, queries and bursts in an endless loop. Each result is a line with the number of
# input lines at its start; the input line `end` ends the loop.
LOAD = """
import json, sys, threading, time
import snowmelt as sm

TABLE = sys.argv[1]
ending = threading.Event()
telling = threading.Lock()
round = 0

@sm.function
def double(event):
    import time
    time.sleep(0.02)
    return 2 * event

@sm.udf
def length(name: str) -> int:
    return len(name)

def call():
    assert double.remote(21) == 42

def query():
    text = f"select max(length(c_name)) as n from '{TABLE}'"
    rows = sm.sql(text, udfs=[length], progress=False).rows()
    assert rows == [(18,)], rows

def burst(network):
    def run():
        assert sm.burst(lambda rank: rank, 4, network=network, progress=False) == [0, 1, 2, 3]
    return run

def tell(*what):
    with telling:
        print(json.dumps(what), flush=True)

def codes(error):
    inner = [code for _, one in getattr(error, "errors", ()) for code in codes(one)]
    if inner:
        return inner
    return [error.code] if isinstance(error, sm.Error) else [f"{type(error).__name__}: {error}"]

def again(kind, work):
    while not ending.is_set():
        begun = round
        try:
            work()
        except Exception as error:
            tell(begun, kind, codes(error))
            time.sleep(0.1)
        else:
            tell(begun, kind, [])

kinds = {"call": call, "query": query, "burst": burst(None), "job": burst("job")}
threads = [threading.Thread(target=again, args=one) for one in kinds.items()]
[thread.start() for thread in threads]
for line in sys.stdin:
    if line.strip() == "end":
        break
    round += 1
ending.set()
[thread.join() for thread in threads]
"""


@dataclass
class Load:
    """A program that sends requests in a loop, and their results."""

    process: "subprocess.Popen[str]"
    round: int = 0

    def until_each_succeeds(self) -> set[str]:
        """Reads until each kind of request begun from now on has succeeded twice in a row;
        returns the codes of failed ones."""
        assert self.process.stdout is not None and self.process.stdin is not None
        self.round += 1
        print(file=self.process.stdin, flush=True)
        row = dict.fromkeys(("call", "query", "burst", "job"), 0)
        met: set[str] = set()
        while min(row.values()) < 2:
            line = self.process.stdout.readline()
            assert line, "the load ended"
            begun, kind, codes = json.loads(line)
            row[kind] = row[kind] + 1 if begun == self.round and not codes else 0
            met |= set(codes)
        return met

    def end(self) -> None:
        _, err = self.process.communicate("end\n", timeout=120)
        assert self.process.returncode == 0, err


def status(snowmelt: Snowmelt) -> dict[str, Any]:
    return dict(json.loads(snowmelt.run("status", "-o", "json").succeeded().out))


def server_row(snowmelt: Snowmelt) -> dict[str, Any]:
    checks = json.loads(snowmelt.run("doctor", "-o", "json").out)
    return next(check for check in checks if check["name"] == "running server")


@pytest.fixture
def load(alone: Snowmelt, data: Path, tmp_path: Path) -> Iterator[Load]:
    alone.run("up").succeeded()
    program = tmp_path / "load.py"
    program.write_text(LOAD)
    process = subprocess.Popen(
        [sys.executable, program, str(data / "customer")],
        env=alone.environ() | {"PYTHONPATH": str(PYTHON), "SNOWMELT_BIN": str(SNOWMELT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Load(process)
    finally:
        process.kill()
        process.communicate()
        alone.run("down")


def test_every_lane_is_killed_under_load(alone: Snowmelt, load: Load) -> None:
    assert load.until_each_succeeds() == set()
    for killed in range(1, 4):
        before = status(alone)["spawner"]
        for lane in before["processes"]:
            os.kill(lane, signal.SIGKILL)
        met = load.until_each_succeeds()
        assert met <= LOST, met
        after = status(alone)["spawner"]
        assert after["replaced"] >= killed and after["failure"] is None
        assert not set(after["processes"]) & set(before["processes"])
        assert server_row(alone)["status"] == "ok"
    load.end()
    ended(alone)


def test_one_lane_is_killed_under_load(alone: Snowmelt, load: Load) -> None:
    load.until_each_succeeds()
    for victim in range(4):
        lanes = status(alone)["spawner"]["processes"]
        os.kill(lanes[victim % len(lanes)], signal.SIGKILL)
        met = load.until_each_succeeds()
        assert met <= LOST, met
    load.end()
    ended(alone)


def ended(snowmelt: Snowmelt) -> None:
    """The server ends normally, and all spawners are cleaned up."""
    server = status(snowmelt)["pid"]
    below = set(descendants(server))
    groups = {folder for folder in MachineState().cgroups if f"/{server}-" in folder}
    assert groups
    snowmelt.run("down").succeeded()
    wait_for(
        "the end of all",
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in below),
        CLEAN_WITHIN_S,
    )
    assert not groups & MachineState().cgroups
    run = snowmelt.folder / "run"
    assert not list(run.iterdir()), list(run.iterdir())


def test_the_status_shows_that_no_spawner_can_be_started(alone: Snowmelt, tmp_path: Path) -> None:
    """The machine cannot create a control group: starts fail until it can."""
    file = tmp_path / "function.py"
    file.write_text("def handler(event):\n    return event\n")
    alone.run("up").succeeded()
    try:
        alone.run("fn", "deploy", "echo", file).succeeded()
        alone.run("fn", "call", "echo", "--data", "1").succeeded()
        lanes = status(alone)["spawner"]["processes"]
        (folder,) = (alone.folder / "run").glob("*/roots")
        for lane in lanes:
            os.kill(lane, signal.SIGSTOP)
        # The folder where it would assemble its roots is a mount, which it cannot remove.
        subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True)
        try:
            for lane in lanes:
                os.kill(lane, signal.SIGKILL)
            wait_for("the failure", lambda: status(alone)["spawner"]["failure"])
            done = alone.run("fn", "call", "echo", "--data", "2")
            done.failed_with("SM-0520")
            row = server_row(alone)
            assert row["status"] == "fail" and row["mend"], row
        finally:
            subprocess.run(["umount", str(folder)], check=True)
        wait_for("another spawner", lambda: status(alone)["spawner"]["processes"])
        assert alone.run("fn", "call", "echo", "--data", "3").succeeded().out.strip() == "3"
    finally:
        alone.run("down").succeeded()
