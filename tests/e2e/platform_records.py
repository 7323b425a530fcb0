"""A platform with records of every kind, and what clients see of them."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import Snowmelt

CODE = """import time

def handler(event):
    if isinstance(event, dict):
        while time.time() < event["until"]:
            time.sleep(0.05)
        return "late"
    return event * 2
"""
UDFS = """import snowmelt as sm

@sm.udf
def twice(n: int) -> int:
    return n * 2
"""
# More than etcd takes in a value, and than a record has in memory.
LONG = 70_000


@dataclass
class Made:
    """Identifiers of calls and bursts."""

    ended: str
    waiting: list[str]
    # Absent from what is seen if it is empty: bursts are forgotten after a day.
    burst: str


def make(control: Snowmelt, folder: Path, until: float, keep: str = "1d") -> Made:
    """Makes records in a platform whose own host is `one`. Calls that wait end after a time."""
    code = folder / "f.py"
    code.write_text(CODE + "#" * LONG)
    deploy = ["fn", "deploy", "f", code, "--keep", keep]
    control.run(*deploy).succeeded()
    control.run(*deploy, "--tenant", "acme", "--instances", "1").succeeded()
    udfs = folder / "udfs.py"
    udfs.write_text(UDFS)
    control.run("udf", "add", udfs).succeeded()
    control.run("token", "new", "acme", "--note", "web shop").succeeded()
    control.run("quota", "set", "acme", "instances=8").succeeded()
    control.run("hosts", "drain", "one").succeeded()
    control.run("hosts", "undrain", "one").succeeded()
    call = ["fn", "call", "f", "--async"]
    ended = control.run(*call, "--data", json.dumps("x" * LONG)).succeeded().out.strip()
    control.run("fn", "result", ended, "--wait").succeeded()
    event = json.dumps({"until": until})
    waiting = [
        control.run(*call, "--tenant", "acme", "--data", event).succeeded().out.strip()
        for _ in range(3)
    ]
    long = folder / "long.json"
    long.write_text(json.dumps("y" * 3 * LONG))
    start = ["fn", "burst", "f", "-n", "2", "--async", "--data", f"@{long}"]
    burst = control.run(*start).succeeded().out.strip()
    control.run("burst", "wait", burst).succeeded()
    return Made(ended, waiting, burst)


def seen(control: Snowmelt, made: Made) -> dict[str, Any]:
    """The records as clients see them, without what changes while a platform runs."""

    def listed(*command: str) -> Any:
        return json.loads(control.run(*command, "-o", "json").succeeded().out)

    functions = listed("fn", "ls") + listed("fn", "ls", "--tenant", "acme")
    limits = {
        each["kind"]: each["limit"]
        for tenant in listed("quota", "ls")
        if tenant["tenant"] == "acme"
        for each in tenant["quotas"]
        if each["own"]
    }
    burst = control.run("burst", "wait", made.burst).succeeded().out if made.burst else ""
    return {
        "functions": [
            (each["name"], each["tenant"], each["version"], each["deployed_ms"])
            for each in functions
        ],
        "keys": [{**each, "used_ms": None} for each in listed("token", "ls")],
        "limits": limits,
        "udfs": [(each["name"], each["version"]) for each in listed("udf", "ls")],
        "result": control.run("fn", "result", made.ended).succeeded().out,
        "burst": burst,
    }


def ends(control: Snowmelt, made: Made) -> list[str]:
    """The results of the calls that waited."""
    return [
        control.run("fn", "result", each, "--wait", "--tenant", "acme").succeeded().out.strip()
        for each in made.waiting
    ]


def soon() -> float:
    """A time by which a server was stopped, mostly: calls that end before do not wait then."""
    return time.time() + 8
