"""No-op sandboxes beside Docker: request to first byte from inside, and how many a second."""

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common.figures import Section, median, percentile, short, spread
from common.places import LEAN
from peers import docker

CONCURRENCY = [1, 2, 10]
OURS, THEIRS = 1000, 60


def busy_ms() -> float:
    """Processor time of the whole machine so far; a tick is 10 ms."""
    ticks = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) * 10.0


def ours(section: Section) -> dict[int, dict[str, Any]]:
    command = [LEAN.name, "sandbox", "--count", str(OURS)]
    command += ["--concurrency", ",".join(map(str, CONCURRENCY))]
    section.commands.append(" ".join(command))
    done = subprocess.run([LEAN, *command[1:]], check=True, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["concurrency"]: row for row in rows}


def theirs(section: Section) -> dict[int, dict[str, Any]]:
    section.commands.append(
        "# Docker's API: create, attach, start, first byte, wait, delete;"
        " --network none (bench/peers/docker.py)"
    )
    found: dict[int, dict[str, Any]] = {}
    with docker.running() as daemon:
        for concurrency in CONCURRENCY:
            connections = [daemon.connection() for _ in range(concurrency)]
            daemon.no_op(connections[0])
            begun, busy = time.perf_counter(), busy_ms()

            def series(number: int, connections: Any = connections) -> list[tuple[float, float]]:
                share = THEIRS // len(connections)
                return [daemon.no_op(connections[number]) for _ in range(share)]

            with ThreadPoolExecutor(concurrency) as pool:
                samples = [s for part in pool.map(series, range(concurrency)) for s in part]
            seconds = time.perf_counter() - begun
            found[concurrency] = {
                "first_byte_us": sorted(first * 1e6 for first, _ in samples),
                "whole_us": sorted(whole * 1e6 for _, whole in samples),
                "per_second": len(samples) / seconds,
                "cpu_ms_each": (busy_ms() - busy) / len(samples),
            }
    return found


def run() -> Section:
    section = Section("No-op sandboxes beside Docker")
    section.say(
        "A sandbox is made, executes a static busybox that writes one byte, and is gone; nothing"
        " is taken again. Docker does the same with the same busybox and `--network none`."
        " Processor time is that of the whole machine, because Docker's is spread over daemons."
    )
    mine, docker_rows = ours(section), theirs(section)
    table = []
    for concurrency in CONCURRENCY:
        for name, row in (("snowmelt", mine[concurrency]), ("docker", docker_rows[concurrency])):
            first = [value / 1000 for value in row["first_byte_us"]]
            whole = [value / 1000 for value in row["whole_us"]]
            cells = [concurrency, name, spread(first), short(percentile(first, 99))]
            cells += [spread(whole), short(row["per_second"]), short(row["cpu_ms_each"])]
            table.append(cells)
    section.table(
        ["at once", "", "first byte, ms", "p99", "whole life, ms", "a second", "CPU ms each"], table
    )
    for concurrency in CONCURRENCY:
        us, them = mine[concurrency], docker_rows[concurrency]
        start = median(them["first_byte_us"]) / median(us["first_byte_us"])
        rate = us["per_second"] / them["per_second"]
        section.promise(
            f"no-op sandbox against Docker, {concurrency} at once",
            "50 times faster to the first byte",
            f"{start:.0f} times, {rate:.0f} times as many a second",
            start >= 50,
        )
    return section
