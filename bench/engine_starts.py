"""Starts of functions in other engines: initialisation, memory and packages by transport (CAGE
table 2), warm against cold (figure 6), and instances for several tasks (section 5.3.3).
"""

import itertools
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import engine_paper
from common import plots
from common.figures import Section, median, short, spread
from engine_calls import (
    COMPARED,
    FACTOR,
    FOREST,
    FUNCTIONS,
    NATIVE,
    ROWS,
    THREADS,
    arguments,
    in_turns,
    made,
    platform,
    ratio,
    remote,
)
from engine_queries import CHUNKS, by_duckdb, by_polars

# Of each transport, after two that make zygotes.
STARTS, FIRST = 5, 2
# Of a platform, for each number of rows.
COLD = 3
SIZES = sorted({1_000, 10_000, *ROWS})
TASKS_ROWS = min(ROWS)
MIB = 1 << 20
# Functions have other names for the platform, so that none has an instance.
marks = map(str, itertools.count())


def memory_kib(numbers: pa.Array) -> pa.Array:
    """For each row the memory of the process that runs this: its share (PSS), and in units of ten
    million all that it has mapped (RSS)."""
    with open("/proc/self/smaps_rollup") as file:
        kib = {line.split()[0]: int(line.split()[1]) for line in file if " kB" in line}
    return pa.array([kib["Pss:"] + 10_000_000 * kib["Rss:"]] * len(numbers), pa.int64())


def init(transport: str) -> tuple[float, float, int, int]:
    """Milliseconds until an instance is leased, and until it has answered its first call by this
    transport; then its PSS and RSS in bytes."""
    packages = ("numpy",) if transport == "numpy" else ()
    with made(memory_kib, [int], int, transport, packages=packages, mark=next(marks)) as called:
        row = pa.record_batch([pa.array([1])], schema=called.arguments)
        begun = time.perf_counter()
        lease = called.lease()
        leased = time.perf_counter()
        answer = lease.call(row)
        answered = time.perf_counter()
        # The pages of the first call count.
        rss, pss = divmod(lease.call(row)[0].as_py(), 10_000_000)
        lease.give_back()
    assert len(answer) == 1
    return 1e3 * (leased - begun), 1e3 * (answered - leased), pss << 10, rss << 10


def bytes_on_disk(folder: Path) -> int:
    done = subprocess.run(["du", "-sk", folder], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[0]) << 10


def table_2(section: Section) -> None:
    rows, ready = [], {}
    with tempfile.TemporaryDirectory(prefix="sm-") as name:
        wheels = Path(name) / "state/packages/wheels"
        sizes = {}
        with platform(Path(name)):
            # The one that needs another package is the last one.
            for transport in sorted(COMPARED, key=lambda transport: transport == "numpy"):
                samples = [init(transport) for _ in range(FIRST + STARTS)][FIRST:]
                leased, answered, pss, rss = zip(*samples, strict=True)
                sizes[transport] = bytes_on_disk(wheels)
                ready[transport] = median(answered)
                memory = [f"{median(one) / MIB:.1f}" for one in (rss, pss)]
                size = f"{sizes[transport] / MIB:.0f}"
                rows.append([transport, spread(leased), spread(answered), *memory, size])
        cold = first_of_platforms(Path(name))
    rows.sort(key=lambda row: COMPARED.index(row[0]))
    for row in rows:
        its = engine_paper.TABLE_2.get(row[0])
        row.append(f"{ready[row[0]] / ready['numpy']:.2f}")
        if its is None:
            row += ["", "", ""]
        else:
            relative = its[2] / engine_paper.TABLE_2["numpy"][2]
            row += [f"{relative:.2f}", f"{its[1] / 1024:.0f}", f"{its[0]}"]
    section.say(
        f"The paper's table 2: functions that the platform has not seen, {STARTS} of each"
        " transport, forked from a zygote with their packages. *Instance*: until it is leased, for"
        " the paper's `docker run`. *Ready*: until it has answered a first call by the transport,"
        " for the paper's initialisation, which ends when the port is open. *RSS* is what a"
        " process has mapped, *PSS* its share of it, as most pages are those of its zygote. The row"
        " *socket* is the instance alone: it needs no library for that transport."
        " *Packages*: the unpacked wheels on disk (pyarrow; numpy for its transport), once for all"
        " functions; the interpreter is that of the machine. In the paper *RSS* is of the control"
        " group and *size* that of the whole image, which each function has."
        f" The first instance of a platform that has just started: {spread(cold)} ms until it has"
        f" answered, {len(cold)} platforms."
    )
    heads = ["transport", "instance, ms", "ready, ms", "RSS, MiB", "PSS, MiB", "packages, MiB"]
    heads += ["ready, of numpy's", "the paper's, of Sockets'", "its RSS, MiB", "its size, MB"]
    section.table(heads, rows)


def first_of_platforms(folder: Path) -> list[float]:
    """Milliseconds of the first instance of a platform, whose packages are unpacked already."""
    found = []
    for _ in range(COLD):
        with platform(folder):
            leased, answered, *_ = init("socket")
            found.append(leased + answered)
    return found


def figure_6(section: Section) -> None:
    """Queries of Polars by shared memory on a platform that has just started, and once more."""
    times: dict[str, dict[int, float]] = {"cold": {}, "warm": {}, "native": {}}
    rows = []
    tables = {count: arguments(count) for count in SIZES}
    function = FUNCTIONS[FOREST][0]

    def query(called: Any, count: int) -> float:
        begun = time.perf_counter()
        by_polars(FOREST, called, tables[count])
        return 1e3 * (time.perf_counter() - begun)

    with tempfile.TemporaryDirectory(prefix="sm-") as name:
        with platform(Path(name)), remote(FOREST, "shared", THREADS) as called:
            # Unpacks the packages.
            query(called, SIZES[0])
        for count in SIZES:
            cold, warm = [], list[float]()
            for _ in range(COLD):
                with platform(Path(name)), remote(FOREST, "shared", THREADS) as called:
                    cold.append(query(called, count))
                    warm += [query(called, count) for _ in range(2)]
            native = [query(function, count) for _ in range(COLD + 1)][1:]
            medians = [median(one) for one in (cold, warm, native)]
            for taken, found in zip(times.values(), medians, strict=True):
                taken[count] = found
            relative = f"{medians[0] / medians[1]:.2f}"
            rows.append([f"{count:,}", spread(cold), spread(warm), spread(native), relative])
    section.plot(
        "udfs-figure-6",
        "Figure 6: milliseconds of a query of Polars by shared memory, warm and cold",
        plots.growth("rows", "ms", times),
    )
    paper = ", ".join(
        f"{relative:.2f} with {n:,} rows" for n, relative in engine_paper.COLD.items()
    )
    section.say(
        f"{FOREST}, {COLD} platforms that have just started for each number of rows, their"
        f" packages unpacked before. *Cold*: the first query, which starts up to {THREADS}"
        " instances, and the zygote. *Warm*: the same again. In the paper's text cold against warm"
        f" is {paper} by Parquet, and {engine_paper.COLD_MLFLOW} with {10_000_000:,} rows by"
        " MLflow; its seconds for fewer rows are in a picture."
    )
    section.table(["rows", "cold, ms", "warm, ms", "native, ms", "cold against warm"], rows)


def tasks(section: Section) -> None:
    """One instance for all tasks against one for each, in DuckDB."""
    table, small = arguments(TASKS_ROWS, CHUNKS), arguments(2048)
    each, one = f"{THREADS} instances", "one instance"
    rows, bars = [], {each: list[float](), one: list[float]()}
    for label in (FOREST, FACTOR):
        called = {each: remote(label, "shared", THREADS), one: remote(label, "shared", 1)}
        ways = {way: partial(by_duckdb, label, function) for way, function in called.items()}
        ways[NATIVE] = partial(by_duckdb, label, FUNCTIONS[label][0])
        taken = in_turns(ways, table, small)
        for way, function in called.items():
            function.close()
            bars[way].append(ratio(taken, way))
        base = short(1e3 * median(taken[NATIVE].wall))
        rows.append([label, base, *(f"{bars[way][-1]:.2f}" for way in (each, one))])
    section.plot(
        "udfs-instances",
        f"Section 5.3.3: {THREADS} threads of DuckDB with an instance each, and with one together",
        plots.bars("times native", [FOREST, FACTOR], bars),
    )
    section.say(
        f"{TASKS_ROWS:,} rows, {THREADS} threads of DuckDB, as a multiple of the native function's"
        " time, which the interpreter's lock lets run in one thread at a time. The paper found a"
        ' "prohibitively large" slowdown with one container for three tasks, and has no number.'
    )
    section.table(["function", "native, ms", each, one], rows)


def run(section: Section) -> None:
    table_2(section)
    figure_6(section)
    with platform():
        tasks(section)
