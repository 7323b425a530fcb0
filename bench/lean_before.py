"""No-op sandboxes now against those of an earlier version, whose program is in another folder.

The two programs take turns, and what is compared is the processor time of their own processes: so
a slow-down of a few percent is visible also on a machine that has other work.
"""

import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from common.figures import Section, median, short, spread
from common.paths import LEAN

# A folder with the `snowmelt-bench-lean` of the earlier version.
BEFORE = os.environ.get("SNOWMELT_BENCH_LEAN_BEFORE", "")
CONCURRENCY = [1, 10]
COUNT, SECONDS, TURNS = 500, 4, 9
BAR = 1.1
DRIVERS = ["floor", "sandbox"]

# By program, driver and concurrency, in the order of the turns.
Found = dict[tuple[str, str, int], list[dict[str, Any]]]


def own_cpu(command: list[str]) -> tuple[dict[str, Any], float]:
    """The row that a driver prints, and the processor time in milliseconds of its process and of
    all below it, which it has waited for."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return json.loads(printed), (usage.ru_utime + usage.ru_stime) * 1000


def turn(program: Path, driver: str, concurrency: int) -> dict[str, Any]:
    bounds = ["--count", str(COUNT), "--seconds", str(SECONDS)]
    row, cpu = own_cpu([str(program), driver, "--concurrency", str(concurrency), *bounds])
    return row | {"own_cpu_ms": cpu / row["count"]}


def measure(programs: dict[str, Path]) -> Found:
    found: Found = defaultdict(list)
    for number in range(TURNS):
        # Each is the first one in half of the turns.
        names = list(programs) if number % 2 == 0 else list(programs)[::-1]
        for concurrency in CONCURRENCY:
            for driver in DRIVERS:
                for name in names:
                    row = turn(programs[name], driver, concurrency)
                    found[name, driver, concurrency].append(row)
    return found


def cpu(rows: list[dict[str, Any]]) -> list[float]:
    return [row["own_cpu_ms"] for row in rows]


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Turn by turn."""
    return [a / b for a, b in zip(above, below, strict=True)]


def report(section: Section, found: Found) -> None:
    lines = []
    for (name, driver, concurrency), rows in sorted(found.items(), key=lambda item: item[0][2]):
        whole = [median(row["whole_us"]) / 1000 for row in rows]
        floor = ratios(cpu(rows), cpu(found[name, "floor", concurrency]))
        over = spread(floor) if driver != "floor" else ""
        cells = [concurrency, driver, name, spread(cpu(rows)), over, spread(whole)]
        lines.append([*cells, short(median([row["per_second"] for row in rows]))])
    head = ["at once", "", "", "CPU ms each", "times the floor's", "whole life, ms", "a second"]
    section.table(head, lines)
    for concurrency in CONCURRENCY:
        ratio = ratios(
            cpu(found["now", "sandbox", concurrency]),
            cpu(found["before", "sandbox", concurrency]),
        )
        section.promise(
            f"processor time of a no-op sandbox against the earlier version, {concurrency} at once",
            f"at most {BAR} times",
            f"{spread(ratio)} times",
            median(ratio) <= BAR,
        )


def compare(section: Section, before: Path) -> None:
    """Adds the comparison with the program in this folder."""
    programs = {"before": before / LEAN.name, "now": LEAN}
    section.say(
        f"Against an earlier version: {TURNS} turns, in which both programs run after each other,"
        " each the first one in half of them. Processor time is that of the program with all of its"
        " sandboxes, without the rest of the machine; ratios are those within a turn."
    )
    section.commands += [
        f"SNOWMELT_BENCH_LEAN_BEFORE=FOLDER python bench/run.py lean-before   # of {LEAN.name}",
    ]
    report(section, measure(programs))


def run() -> Section:
    section = Section("No-op sandboxes against an earlier version")
    compare(section, Path(BEFORE))
    return section
