"""All 22 queries of TPC-H: ours with 2 and with 16 workers, plain DataFusion, DuckDB, Polars and
Spark.

Runs of the engines take turns, and answers are compared with DuckDB's. Processor time is the bill
of a serverless platform, and unlike wall time it hardly depends on other load: it is counted for
the engine's own processes, not for the machine.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import peers, spark
from common.answers import difference
from common.figures import Section, median, short, spread
from common.paths import CHECKOUT, HELPER, SNOWMELT, shown, tpch
from common.processes import cpu_seconds_below
from common.server import Server

TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]
QUERIES = sorted((CHECKOUT / "tests/tpch").glob("q*.sql"))
THREADS = 2
RUNS = 3

# Scale factors, for example `1` or `1,3`, and the one that is an experiment of its own.
SCALES = os.environ.get("SNOWMELT_BENCH_SCALES", "1").split(",")
LARGE = os.environ.get("SNOWMELT_BENCH_LARGE_SCALE", "10")
# Spark compiles its code on these tables before anything is measured.
WARMING = "0.01"

OURS = {"snowmelt, 2 workers": 2, "snowmelt, 16 workers": 16}
DUCKDB, DATAFUSION, POLARS, SPARK = "DuckDB", "DataFusion", "Polars", "Spark"

POLARS_PROGRAM = """
import sys, polars
context = polars.SQLContext(eager=False)
for name in sys.argv[2:]:
    context.register(name, polars.scan_parquet(f"{sys.argv[1]}/{name}/*.parquet"))
context.execute(sys.stdin.read()).collect()
"""


@dataclass
class Sample:
    """Seconds of one run."""

    wall: float
    cpu: float


Value = Callable[[Sample], float]


@dataclass
class Engine:
    """How a query runs, and its samples by query."""

    run: Callable[[Path], Sample]
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))

    def wall(self, query: str) -> float:
        return median([sample.wall for sample in self.samples[query]])

    def cpu(self, query: str) -> float:
        return median([sample.cpu for sample in self.samples[query]])

    def totals(self, value: Value) -> list[float]:
        """Of all queries, by round."""
        return [sum(map(value, samples)) for samples in zip(*self.samples.values(), strict=True)]


def ratios(engine: Engine, other: Engine, value: Value) -> list[float]:
    """Of all queries in each round; one of the medians, if the engines have not as many rounds."""
    ours, theirs = engine.totals(value), other.totals(value)
    if len(ours) != len(theirs):
        return [median(ours) / median(theirs)]
    return [a / b for a, b in zip(ours, theirs, strict=True)]


@dataclass
class Measured:
    """All engines at a scale factor."""

    scale: str
    rounds: int
    engines: dict[str, Engine]
    spark: spark.Session
    # Of Spark, by query, in a JVM that has not run it before.
    first: dict[str, Sample] = field(default_factory=dict)


def timed(command: list[str], environment: dict[str, str] | None = None, text: str = "") -> Sample:
    """Runs a process to its end; its own processor time, with that of its children."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Sample(time.perf_counter() - begun, used.ru_utime + used.ru_stime)


def folders(data: Path) -> dict[str, Path]:
    return {table: data / table for table in TABLES}


def ours(
    server: Server, workers: int, tables: dict[str, Path], answer: Path
) -> Callable[[Path], Sample]:
    """The command against a server: its processor time, and that of the server and all below it."""
    process = int(server.status()["pid"])
    command = [str(SNOWMELT), "sql", "--workers", str(workers), "--progress", "quiet"]
    for table, folder in tables.items():
        command += ["--table", f"{table}={folder}"]
    command += ["-o", "arrow", "-O", str(answer)]

    def run(query: Path) -> Sample:
        before = cpu_seconds_below(process)
        sample = timed([*command, "-f", str(query)], server.environment)
        sample.cpu += cpu_seconds_below(process) - before
        return sample

    return run


def duckdb(tables: dict[str, Path]) -> Callable[[Path], Sample]:
    views = [f"create view {t} as select * from '{at}/*.parquet';" for t, at in tables.items()]
    words = [str(peers.duckdb_command()), "-csv", "-c", f"set threads = {THREADS};"]
    words += [word for view in views for word in ("-c", view)]
    return lambda query: timed([*words, "-c", query.read_text()])


def datafusion(data: Path) -> Callable[[Path], Sample]:
    words = [str(HELPER), "datafusion", "--partitions", str(THREADS)]
    words += [word for table in TABLES for word in ("--table", f"{table}={data / table}")]
    return lambda query: timed([*words, "--sql", f"@{query}"])


def polars(data: Path) -> Callable[[Path], Sample]:
    words = [sys.executable, "-c", POLARS_PROGRAM, str(data), *TABLES]
    environment = os.environ | {"POLARS_MAX_THREADS": str(THREADS)}
    return lambda query: timed(words, environment, query.read_text())


def by_spark(session: spark.Session, answer: Path) -> Callable[[Path], Sample]:
    def run(query: Path) -> Sample:
        taken = session.ask(query.read_text(), answer)
        return Sample(taken.wall, taken.cpu)

    return run


def check(query: Path, answer: Path, expected: Any) -> None:
    if wrong := difference(peers.read_arrow(answer), expected, ordered=False):
        raise RuntimeError(f"{query.stem}: not the same answer: {wrong}")


def read_once(data: Path) -> None:
    """Has the page cache hold all tables, for engines of which the first run counts."""
    for table in TABLES:
        for part in (data / table).iterdir():
            with part.open("rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass


def measure(scale: str, rounds: int) -> Measured:
    """All engines on all queries. With several rounds, there is one before that is not counted."""
    data, small = tpch(scale, TABLES), tpch(WARMING, TABLES)
    tables = folders(data)
    with (
        tempfile.TemporaryDirectory(prefix="sm-") as name,
        Server(Path(name)) as server,
        spark.session(THREADS, TABLES) as session,
    ):
        answer = Path(name) / "answer.arrow"
        engines = {
            label: Engine(ours(server, workers, tables, answer)) for label, workers in OURS.items()
        }
        engines |= {
            DUCKDB: Engine(duckdb(tables)),
            DATAFUSION: Engine(datafusion(data)),
            POLARS: Engine(polars(data)),
            SPARK: Engine(by_spark(session, answer)),
        }
        found = Measured(scale, rounds, engines, session)
        session.read(small)
        for query in QUERIES:
            taken = session.ask(query.read_text())
            found.first[query.stem] = Sample(taken.wall, taken.cpu)
        session.read(data)
        read_once(data)
        for query in QUERIES:
            expected = peers.duck_answer(query.read_text(), tables, THREADS).table
            take_turns(found, query, answer, expected)
            print(f"tpch sf{scale}: {query.stem} measured", file=sys.stderr)
        return found


def take_turns(found: Measured, query: Path, answer: Path, expected: Any) -> None:
    """All rounds of a query; Spark, which takes the longest, has one."""
    warming = found.rounds > 1
    for round_ in range(found.rounds + warming):
        counted = round_ > 0 or not warming
        for label, engine in found.engines.items():
            if label == SPARK and round_ > warming:
                continue
            sample = engine.run(query)
            if counted:
                engine.samples[query.stem].append(sample)
            if label in (*OURS, SPARK) and round_ == 0:
                check(query, answer, expected)


def show(section: Section, found: Measured) -> None:
    names, engines = [query.stem for query in QUERIES], found.engines
    head = ["", *(f"{label}, s (CPU s)" for label in engines)]
    cell = lambda engine, name: f"{short(engine.wall(name))} ({short(engine.cpu(name))})"  # noqa: E731
    rows = [[name, *(cell(engine, name) for engine in engines.values())] for name in names]
    for title, value in (("all, s", WALL), ("all, CPU s", CPU)):
        rows.append([title, *(spread(engine.totals(value)) for engine in engines.values())])
    data = shown(tpch(found.scale, TABLES))
    section.say(f"Scale factor {found.scale}, tables in {data}:")
    section.table(head, rows)
    promise_processor(section, found)
    promise_time(section, found)
    promise_spark(section, found)


WALL: Value = lambda sample: sample.wall  # noqa: E731
CPU: Value = lambda sample: sample.cpu  # noqa: E731


def promise_processor(section: Section, found: Measured) -> None:
    engines, first = found.engines, next(iter(OURS))
    against = {
        label: ratios(engines[first], engines[label], CPU) for label in (DUCKDB, DATAFUSION, POLARS)
    }
    section.promise(
        f"TPC-H {found.scale}: processor time of all 22 against DuckDB, 2 workers",
        "at most 1.1 times",
        f"{spread(against[DUCKDB])} times ({spread(against[DATAFUSION])} of plain DataFusion,"
        f" {spread(against[POLARS])} of Polars)",
        median(against[DUCKDB]) <= 1.1,
    )
    by_query = {
        query.stem: engines[first].cpu(query.stem) / engines[DUCKDB].cpu(query.stem)
        for query in QUERIES
    }
    worst = max(by_query, key=lambda name: by_query[name])
    section.promise(
        f"TPC-H {found.scale}: processor time of each query against DuckDB, 2 workers",
        "at most 1.6 times",
        f"{worst}: {by_query[worst]:.2f} times",
        by_query[worst] <= 1.6,
    )


def promise_time(section: Section, found: Measured) -> None:
    for (label, _), bar in zip(OURS.items(), (1.15, 1.5), strict=True):
        ratio = ratios(found.engines[label], found.engines[DATAFUSION], WALL)
        section.promise(
            f"TPC-H {found.scale}: time of all 22 against DataFusion in one process, {label}",
            f"at most {bar} times",
            f"{spread(ratio)} times",
            median(ratio) <= bar,
        )


def promise_spark(section: Section, found: Measured) -> None:
    start = found.spark.start
    first = [sum(map(value, found.first.values())) for value in (WALL, CPU)]
    section.say(
        f"Spark {found.spark.version}: the start of Python, of its JVM and of a session takes"
        f" {short(start.wall)} s ({short(start.cpu)} CPU s), which is in none of the figures above,"
        f" and the first run of all queries, at scale factor {WARMING},"
        f" {short(first[0])} s ({short(first[1])} CPU s), which warms it."
    )
    for label in OURS:
        faster = ratios(found.engines[SPARK], found.engines[label], WALL)
        cheaper = ratios(found.engines[SPARK], found.engines[label], CPU)
        # As a process for each query: the start of the JVM, without what warming takes.
        ours = median(found.engines[label].totals(WALL))
        process = (median(found.engines[SPARK].totals(WALL)) + start.wall * len(QUERIES)) / ours
        section.promise(
            f"TPC-H {found.scale}: time of all 22 against Spark local, warm, {label}",
            "at least 10 times faster",
            f"{spread(faster)} times ({spread(cheaper)} in processor time; {short(process)} with a"
            " start of Spark for each query)",
            median(faster) >= 10,
        )


def section_of(title: str, scales: Sequence[str], rounds: int) -> Section:
    section = Section(title)
    counted = (
        f"Medians of {rounds} rounds after one that is not counted (of Spark one), engines taking"
        " turns"
        if rounds > 1
        else "One run of each, engines taking turns, after all files were read once"
    )
    section.say(
        f"{counted}, two cores,"
        f" {THREADS} threads for each engine, answers compared with DuckDB's. *snowmelt*: the"
        " command against `snowmelt up`, idle workers taken again; its processor time is that of"
        " the command, of the server and of all sandboxes. The others are processes of their own,"
        " from their start to their end: DuckDB the program of the wheel duckdb-cli, DataFusion a"
        " program that does nothing but run the query, Polars `SQLContext` in Python. Spark is"
        f" `local[{THREADS}]` in a session that runs already and has run the query before; its"
        " processor time is that of Python and the JVM."
    )
    for scale in scales:
        show(section, measure(scale, rounds))
    return section


def run() -> Section:
    section = section_of("TPC-H, all 22 queries", SCALES, RUNS)
    section.commands.append(f"SNOWMELT_BENCH_SCALES={','.join(SCALES)} python bench/run.py tpch")
    return section


def run_large() -> Section:
    """A run of each engine: a round takes ten minutes."""
    section = section_of(f"TPC-H, all 22 queries, scale factor {LARGE}", [LARGE], 1)
    section.commands.append(f"SNOWMELT_BENCH_LARGE_SCALE={LARGE} python bench/run.py tpch-large")
    return section
