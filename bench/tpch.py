"""All 22 queries of TPC-H: ours with 2 and with 16 workers, plain DataFusion, DuckDB and Polars.

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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from common import peers
from common.answers import difference
from common.figures import Section, median, short
from common.paths import CHECKOUT, HELPER, SNOWMELT, shown, tpch
from common.processes import cpu_seconds_below
from common.server import Server

TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]
QUERIES = sorted((CHECKOUT / "tests/tpch").glob("q*.sql"))
THREADS = 2
RUNS = 3

# Scale factors, for example `1` or `1,10`.
SCALES = os.environ.get("SNOWMELT_BENCH_SCALES", "1,10").split(",")

OURS = {"snowmelt, 2 workers": 2, "snowmelt, 16 workers": 16}
DUCKDB, DATAFUSION, POLARS = "DuckDB", "DataFusion", "Polars"

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


@dataclass
class Engine:
    """How a query runs, and its samples by query."""

    run: Callable[[Path], Sample]
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))

    def wall(self, query: str) -> float:
        return median([sample.wall for sample in self.samples[query]])

    def cpu(self, query: str) -> float:
        return median([sample.cpu for sample in self.samples[query]])


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


def ours(server: Server, workers: int, data: Path, answer: Path) -> Callable[[Path], Sample]:
    """The command against a server: its processor time, and that of the server and all below it."""
    process = int(server.status()["pid"])
    command = [str(SNOWMELT), "sql", "--workers", str(workers), "--progress", "quiet"]
    for table in TABLES:
        command += ["--table", f"{table}={data / table}"]
    command += ["-o", "arrow", "-O", str(answer)]

    def run(query: Path) -> Sample:
        before = cpu_seconds_below(process)
        sample = timed([*command, "-f", str(query)], server.environment)
        sample.cpu += cpu_seconds_below(process) - before
        return sample

    return run


def duckdb(data: Path) -> Callable[[Path], Sample]:
    views = [f"create view {t} as select * from '{data / t}/*.parquet';" for t in TABLES]
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


def check(query: Path, answer: Path, tables: dict[str, Path]) -> None:
    theirs = peers.duck_answer(query.read_text(), tables, THREADS).table
    if wrong := difference(peers.read_arrow(answer), theirs, ordered=False):
        raise RuntimeError(f"{query.stem}: not the same answer: {wrong}")


def measure(scale: str) -> dict[str, Engine]:
    """All engines on all queries; the first run of each is not counted."""
    data = tpch(scale, TABLES)
    tables = {table: data / table for table in TABLES}
    with tempfile.TemporaryDirectory(prefix="sm-") as name, Server(Path(name)) as server:
        answer = Path(name) / "ours.arrow"
        engines = {
            label: Engine(ours(server, workers, data, answer)) for label, workers in OURS.items()
        }
        engines |= {
            DUCKDB: Engine(duckdb(data)),
            DATAFUSION: Engine(datafusion(data)),
            POLARS: Engine(polars(data)),
        }
        for query in QUERIES:
            for round_ in range(RUNS + 1):
                for label, engine in engines.items():
                    sample = engine.run(query)
                    if round_ > 0:
                        engine.samples[query.stem].append(sample)
                    elif label in OURS:
                        check(query, answer, tables)
            print(f"tpch sf{scale}: {query.stem} measured", file=sys.stderr)
        return engines


def show(section: Section, scale: str, engines: dict[str, Engine]) -> None:
    names = [query.stem for query in QUERIES]
    head = ["", *(f"{label}, s (CPU s)" for label in engines)]
    cell = lambda engine, name: f"{short(engine.wall(name))} ({short(engine.cpu(name))})"  # noqa: E731
    rows = [[name, *(cell(engine, name) for engine in engines.values())] for name in names]
    wall = {label: sum(map(engine.wall, names)) for label, engine in engines.items()}
    cpu = {label: sum(map(engine.cpu, names)) for label, engine in engines.items()}
    total = ["all", *(f"{short(wall[label])} ({short(cpu[label])})" for label in engines)]
    section.say(f"Scale factor {scale}:")
    section.table(head, [*rows, total])
    first = next(iter(OURS))
    against_duckdb = cpu[first] / cpu[DUCKDB]
    section.promise(
        f"TPC-H {scale}: processor time of all 22 against DuckDB, 2 workers",
        "at most 1.1 times",
        f"{against_duckdb:.2f} times ({cpu[first] / cpu[DATAFUSION]:.2f} of plain DataFusion,"
        f" {cpu[first] / cpu[POLARS]:.2f} of Polars)",
        against_duckdb <= 1.1,
    )
    by_query = {name: engines[first].cpu(name) / engines[DUCKDB].cpu(name) for name in names}
    worst = max(by_query, key=lambda name: by_query[name])
    section.promise(
        f"TPC-H {scale}: processor time of each query against DuckDB, 2 workers",
        "at most 1.6 times",
        f"{worst}: {by_query[worst]:.2f} times",
        by_query[worst] <= 1.6,
    )
    for (label, _), bar in zip(OURS.items(), (1.15, 1.5), strict=True):
        ratio = wall[label] / wall[DATAFUSION]
        section.promise(
            f"TPC-H {scale}: time of all 22 against DataFusion in one process, {label}",
            f"at most {bar} times",
            f"{ratio:.2f} times",
            ratio <= bar,
        )


def run() -> Section:
    section = Section("TPC-H, all 22 queries")
    section.say(
        f"Medians of {RUNS} runs after one that is not counted, engines taking turns, two cores,"
        f" {THREADS} threads for each engine, answers compared with DuckDB's. *snowmelt*: the"
        " command against `snowmelt up`, idle workers taken again; its processor time is that of"
        " the command, of the server and of all sandboxes. The others are processes of their own,"
        " from their start to their end: DuckDB the program of the wheel duckdb-cli, DataFusion a"
        " program that does nothing but run the query, Polars `SQLContext` in Python."
    )
    for scale in SCALES:
        data = shown(tpch(scale, TABLES))
        section.commands.append(
            f"SNOWMELT_BENCH_SCALES={scale} python bench/run.py tpch  # tables in {data}"
        )
        show(section, scale, measure(scale))
    return section
