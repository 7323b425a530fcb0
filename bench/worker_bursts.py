"""Large bursts of query workers: 256, 1,000 and 4,096 tasks that do next to nothing.

Each task adds up a small file of its own, so a burst is all platform: to plan, to start sandboxes,
to send each its part of the plan and to collect the answers.
"""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from common import plots
from common.asked import Run, ask, platform
from common.figures import Section, median, percentile, short, spread
from common.paths import scratch

TASKS = [int(n) for n in os.environ.get("SNOWMELT_BENCH_BURSTS", "256,1000,4096").split(",")]
# A worker uses 14 MiB for this query, and more of it the more tasks there are beside its own.
MEMORY = 16 << 20
MEMORY_OF_MANY, MANY = 24 << 20, 2000
DRIVER = 3 << 29
RUNS = 3
# Sandboxes, of which each may have so many processes and threads (docs/reference/configuration.md).
PROCESSES_EACH = 8
ROWS = 1000
QUERY = "select count(*) as n, sum(x) as s from t"


def write(folder: Path, tasks: int) -> Path:
    """A file for each task, just large enough that a task is started for it."""
    place = folder / f"{tasks}"
    place.mkdir()
    values = np.random.default_rng(1)
    for number in range(tasks):
        part = pa.table({"x": values.integers(0, 1 << 40, ROWS)})
        pq.write_table(part, place / f"{number:05}.parquet", use_dictionary=False)
    return place


def memory_of(tasks: int) -> int:
    """Bytes of each worker."""
    return MEMORY if tasks < MANY else MEMORY_OF_MANY


def burst(table: Path, tasks: int, processes: Sequence[int]) -> Run:
    run = ask(QUERY, processes, workers=tasks, memory=memory_of(tasks), t=table)
    expected = pc.sum(ds.dataset(table).to_table()["x"]).as_py()
    if run.answer.to_pylist() != [{"n": tasks * ROWS, "s": expected}]:
        raise RuntimeError(f"{tasks} tasks: {run.answer.to_pylist()}")
    # Of thousands of files, a few share a task: tasks are made of equal bytes.
    if not tasks * 0.98 <= run.profile["stages"][0]["tasks"] <= tasks:
        raise RuntimeError(f"{run.profile['stages'][0]['tasks']} tasks, not {tasks}")
    return run


def lanes(run: Run) -> list[dict[str, Any]]:
    return [lane for lane in run.profile["lanes"] if lane["stage"] == 0]


def most_at_once(run: Run) -> int:
    """The most workers that were held at the same moment."""
    changes = [(lane["ready_us"], 1) for lane in lanes(run)]
    changes += [(lane["done_us"], -1) for lane in lanes(run)]
    held, most = 0, 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def began(run: Run) -> list[float]:
    """Seconds from the start of the first stage until each task began."""
    first = run.profile["stages"][0]["from_us"]
    return sorted((max(lane["began_us"], lane["ready_us"]) - first) / 1e6 for lane in lanes(run))


def ran(run: Run) -> list[float]:
    """Milliseconds that each task ran."""
    return [
        (lane["done_us"] - max(lane["began_us"], lane["ready_us"])) / 1e3 for lane in lanes(run)
    ]


def row(tasks: int, kind: str, runs: list[Run]) -> list[str]:
    last = sorted(runs, key=lambda run: run.wall)[len(runs) // 2]
    starts, times = began(last), ran(last)
    totals = last.profile["totals"]
    return [
        f"{tasks:,}",
        kind,
        f"{totals['cold']:,} / {totals['warm']:,}",
        f"{most_at_once(last):,}",
        spread([run.wall for run in runs]),
        f"{median(starts):.3g} / {starts[-1]:.3g}",
        f"{median(times):.3g} / {percentile(times, 99):.3g}",
        spread([run.cpu / tasks * 1000 for run in runs]),
        f"{tasks / median([run.wall for run in runs]):,.0f}",
    ]


def limits(section: Section, memory: int) -> None:
    """What bounds the workers that exist at the same time."""
    processes = sandbox_processes()
    section.say(
        f"Limits of workers at the same time on this machine: memory, {memory >> 20:,} MiB for all"
        f" sandboxes, of which each worker reserves its limit of {MEMORY >> 20} MiB and the driver"
        f" {DRIVER >> 20:,}: {(memory - DRIVER) // MEMORY:,} workers; processes, {processes:,} for"
        f" all sandboxes and one sandbox for each {PROCESSES_EACH} of them:"
        f" {processes // PROCESSES_EACH:,}. Tasks above the smaller number begin when others are"
        " done."
    )


def sandbox_memory() -> int:
    """The default of `sandboxes.memory`: the machine's without an eighth."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8 * 7


def sandbox_processes() -> int:
    """The default of `sandboxes.processes`."""
    sizes = (Path(f"/proc/sys/kernel/{name}") for name in ("pid_max", "threads-max"))
    return min(int(size.read_text()) for size in sizes) * 3 // 4


@dataclass
class Bursts:
    """Of one number of tasks: the first of a platform, and those after it."""

    cold: list[Run] = field(default_factory=list)
    warm: list[Run] = field(default_factory=list)


def measure(memory: int) -> dict[int, Bursts]:
    """A platform for each first burst, so that it finds no worker."""
    found: dict[int, Bursts] = {}
    for tasks in TASKS:
        bursts = found[tasks] = Bursts()
        with scratch() as folder:
            table = write(folder, tasks)
            for _ in range(RUNS):
                with platform(folder, SNOWMELT_SANDBOXES_MEMORY=str(memory)) as processes:
                    bursts.cold.append(burst(table, tasks, processes))
                    bursts.warm.append(burst(table, tasks, processes))
    return found


def cpu_each(runs: list[Run], tasks: int) -> float:
    return median([run.cpu for run in runs]) / tasks * 1000


def run() -> Section:
    section = Section("Bursts of query workers")
    memory = sandbox_memory()
    section.say(
        f"`{QUERY}` over as many files as tasks, {ROWS:,} rows each, with as many workers of"
        f" {MEMORY >> 20} MiB ({MEMORY_OF_MANY >> 20} MiB from {MANY:,} tasks on)."
        " *cold*: the first query of a platform; *warm*: the one after it,"
        f" which takes idle workers again. {RUNS} platforms. A start is the time from the begin of"
        " the stage until a task begins in its worker. Processor time is that of the platform and"
        " its sandboxes."
    )
    limits(section, memory)
    section.commands += [
        f"SNOWMELT_BENCH_BURSTS={','.join(map(str, TASKS))} python bench/run.py bursts",
        f"snowmelt sql --workers 1000 --memory {MEMORY >> 20}MiB --table t=FOLDER '{QUERY}'",
    ]
    found = measure(memory)
    rows = []
    for tasks, bursts in found.items():
        rows += [row(tasks, "cold", bursts.cold), row(tasks, "warm", bursts.warm)]
    head = ["tasks", "", "started / taken again", "at once", "s", "start, median / last, s"]
    section.table([*head, "task, median / p99, ms", "CPU ms each", "tasks a second"], rows)
    starts = {}
    for tasks, bursts in found.items():
        seconds = began(sorted(bursts.cold, key=lambda run: run.wall)[RUNS // 2])
        points = [(second, (n + 1) / tasks * 100) for n, second in enumerate(seconds)]
        starts[f"{tasks:,} tasks"] = points[:: max(tasks // 100, 1)]
    section.plot(
        "worker-bursts",
        "Tasks that have begun against time since the begin of the stage, cold",
        plots.progress("s", "% of the tasks", starts),
    )
    for few, many in itertools.pairwise(TASKS):
        each = [found[tasks].cold for tasks in (many, few)]
        ratio = [(more.cpu / many) / (less.cpu / few) for more, less in zip(*each, strict=True)]
        section.promise(
            f"processor time of each of {many:,} tasks against one of {few:,}, cold",
            "at most 1.3 times",
            f"{spread(ratio)} times ({short(cpu_each(found[many].cold, many))} ms)",
            median(ratio) <= 1.3,
        )
    return section
