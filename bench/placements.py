"""Placement of calls: how fast the scheduler decides, and what a call on another host costs."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.figures import Section, median, spread
from common.paths import HELPER, SNOWMELT, scratch

PLACEMENTS = 10_000
ADDED_MS = 0.5
CALLS = 2_000
ROUNDS = 5
HANDLER = "def handler(event):\n    return event\n"
# (hosts, seconds that idle instances are kept)
SIZES = ((10, 60), (100, 60), (1000, 60), (1000, 0))


def speed(section: Section) -> None:
    rows, slowest = [], 0.0
    for hosts, idle in SIZES:
        command = [str(HELPER), "placements", "--hosts", str(hosts), "--idle-s", str(idle)]
        section.commands.append(" ".join(["snowmelt-bench", *command[1:]]))
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout)
        slowest = float(found["per_second"])
        rows.append([f"{hosts:,}", "yes" if idle else "no", f"{slowest:,.0f}"])
    section.say(
        "100 functions of 10 tenants, 2,000 calls at the same time on hosts of 16 cores and 64 GiB."
        " Without idle instances each call is placed by the orders of hosts for new instances."
    )
    section.table(["hosts", "idle instances are kept", "placements a second, one core"], rows)
    section.promise(
        "placements a second with 1,000 hosts, each call a new instance",
        f"at least {PLACEMENTS:,}",
        rows[-1][-1],
        slowest >= PLACEMENTS,
    )


@contextmanager
def lab(folder: Path, *options: str) -> Iterator[Any]:
    """A client of a lab of two hosts with a deployed function."""
    environment = os.environ | {
        "SNOWMELT_STATE": str(folder / "state"),
        "SNOWMELT_RUN": str(folder / "run"),
    }

    def run(*words: str) -> None:
        subprocess.run([SNOWMELT, *words], check=True, capture_output=True, env=environment)

    run("lab", "up", "--hosts", "2", "--link", "10gbit", *options)
    try:
        # Hosts are used as soon as control has read their reports, once a second.
        time.sleep(3)
        file = folder / "f.py"
        file.write_text(HANDLER)
        command = ("fn", "deploy", "f", str(file), "--memory", "64MiB")
        run("lab", "run", "--", str(SNOWMELT), *command)
        [socket] = (folder / "run" / "labs").glob("*/snowmelt.sock")
        os.environ["SNOWMELT_SOCKET"] = str(socket)
        from snowmelt._client import client

        yield client()
    finally:
        os.environ.pop("SNOWMELT_SOCKET", None)
        run("lab", "down")


def warm(folder: Path, *options: str) -> tuple[str, float]:
    """The host that ran all calls, and the median time of one in milliseconds."""
    times, hosts = [], set()
    with lab(folder, *options) as client:
        for number in range(CALLS):
            begun = time.perf_counter()
            ran = client.call("POST", "/v1/functions/f/invocations", {"event": number})
            times.append(1000 * (time.perf_counter() - begun))
            hosts.add(ran["host"])
    [host] = hosts
    settled = sorted(times[CALLS // 10 :])
    return host, settled[len(settled) // 2]


def latency(section: Section) -> None:
    near, far = [], []
    for _ in range(ROUNDS):
        with scratch() as folder:
            host, time_near = warm(folder)
            assert host == "host-1", host
        with scratch() as folder:
            host, time_far = warm(folder, "--control-only")
            assert host == "host-2", host
        near.append(time_near)
        far.append(time_far)
    section.say(
        f"Median of {CALLS:,} warm calls of a Python function that returns its event, by one client"
        f" of a lab of two hosts ({ROUNDS} rounds):"
    )
    added = [b - a for a, b in zip(near, far, strict=True)]
    rows = [
        ["on control's host", spread(near)],
        ["on the other host", spread(far)],
        ["difference", spread(added)],
    ]
    section.table(["", "ms"], rows)
    section.promise(
        "a warm call on another host",
        f"at most {ADDED_MS} ms longer than on control's",
        f"{median(added):.2f} ms",
        median(added) <= ADDED_MS,
    )


def run() -> Section:
    section = Section("Calls of functions on several hosts")
    speed(section)
    latency(section)
    return section
