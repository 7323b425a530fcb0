"""One function in other engines: native, and in sandboxes by each transport (CAGE 6)."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import snowmelt as sm
from common.figures import Section, median, spread
from common.paths import BENCH
from common.processes import cpu_seconds_below
from common.server import Server
from peers import udf_functions
from snowmelt.engines import Remote
from snowmelt.engines import duckdb as in_duckdb
from snowmelt.engines import polars as in_polars

ROWS = [int(n) for n in os.environ.get("SNOWMELT_BENCH_UDF_ROWS", "100000,1000000").split(",")]
RUNS = 5
THREADS = 2
BATCH = 10_000
TRANSPORTS = ("socket", "shared")
# Those of other systems, with fewer rows: the slowest take a second for 10,000.
COMPARED = (*TRANSPORTS, "flight", "numpy", "parquet", "mlflow", "json")
COMPARED_ROWS = int(os.environ.get("SNOWMELT_BENCH_TRANSPORT_ROWS", "50000"))
COMPARED_RUNS, COMPARED_CALLS = 3, 10
SPARK = BENCH / "peers/spark_functions.py"
DOUBLES = [float] * udf_functions.INPUTS

FUNCTIONS: dict[str, tuple[Any, list[Any], Any]] = {
    "forest of 28 inputs": (udf_functions.forest, DOUBLES, float),
    "largest prime factor": (udf_functions.largest_factor, [int], int),
    "one of 28 inputs": (udf_functions.first, DOUBLES, float),
}


@contextmanager
def platform() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="sm-") as name, Server(Path(name)) as server:
        os.environ["SNOWMELT_SOCKET"] = str(server.socket)
        try:
            yield server
        finally:
            del os.environ["SNOWMELT_SOCKET"]


def remote(label: str, transport: str, instances: int) -> Remote:
    function, arguments, returns = FUNCTIONS[label]
    names = ", ".join(f"x{n}" for n in range(len(arguments)))
    scope = {"function": function}
    exec(f"def called({names}):\n    return function({names})", scope)
    udf = sm.udf(batch="arrow", args=arguments, returns=returns, packages=["numpy"], name="called")
    return Remote(udf(scope["called"]), instances=instances, transport=transport)


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def batches(section: Section) -> None:
    """Microseconds of a call, by what is passed."""
    numbers = np.random.default_rng(1)
    double = pa.array(numbers.random(BATCH))
    text = pa.array([f"{n:0100}" for n in range(BATCH)])
    shapes: dict[str, tuple[list[pa.Array], type]] = {
        "1 double": ([double], float),
        "28 doubles": ([double] * 28, float),
        "100 doubles": ([double] * 100, float),
        "a string of 100 bytes": ([text], str),
        "1 double, 1 million rows": ([pa.array(numbers.random(1_000_000))], float),
    }
    rows, ratios = [], []
    for label, (columns, kind) in shapes.items():
        taken: dict[str, list[float]] = {}
        for transport in TRANSPORTS:
            names = ", ".join(f"x{n}" for n in range(len(columns)))
            scope: dict[str, Any] = {}
            exec(f"def same({names}):\n    return x0", scope)
            kinds = [kind] * len(columns)
            udf = sm.udf(batch="arrow", args=kinds, returns=kind, name="same")(scope["same"])
            with Remote(udf, instances=1, transport=transport) as called:
                calls = [seconds(partial(called, *columns)) for _ in range(220)]
            taken[transport] = calls[20:]
        passed = sum(column.nbytes for column in columns) + columns[0].nbytes
        rates = [passed / median(taken[transport]) / 1e9 for transport in TRANSPORTS]
        micros = [[1e6 * one for one in taken[transport]] for transport in TRANSPORTS]
        ratios.append(rates[1] / rates[0])
        rows.append(
            [label, *map(spread, micros), *(f"{rate:.2f}" for rate in rates), f"{ratios[-1]:.2f}"]
        )
    section.say(
        f"A function that returns its first argument, {BATCH:,} rows unless said otherwise, one"
        " thread and one instance, 200 calls after 20. Bytes are those of arguments and result."
    )
    section.table(
        ["arguments", "socket, us", "shared memory, us", "socket, GB/s", "shared, GB/s", "ratio"],
        rows,
    )
    best = max(ratios)
    section.promise("Shared memory against the socket", "2 times", f"up to {best:.2f}", best >= 2)


def column_names(kinds: list[Any]) -> list[str]:
    """The columns of the tables here that a function takes."""
    return ["n"] if kinds == [int] else [f"x{n}" for n in range(len(kinds))]


def arguments(count: int) -> pa.Table:
    numbers = np.random.default_rng(2)
    columns = {f"x{n}": numbers.random(count) for n in range(udf_functions.INPUTS)}
    return pa.table({**columns, "n": numbers.integers(1 << 20, 1 << 21, count)})


def by_duckdb(label: str, table: pa.Table, called: Remote | None) -> float:
    """Registers, and gives the sum of the results; the native function runs in this process."""
    function, kinds, returns = FUNCTIONS[label]
    names = column_names(kinds)
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {THREADS}")
        connection.register("t", table)
        if called is not None:
            in_duckdb.register(connection, called, "called")
        else:
            native(connection, function, kinds, returns)
        sql = f"select sum(called({', '.join(names)})) from t"
        return float(connection.sql(sql).fetchall()[0][0])


def native(connection: Any, function: Any, kinds: list[type], returns: type) -> None:
    names = ", ".join(f"x{n}" for n in range(len(kinds)))
    # DuckDB gives chunked arrays; sandboxes give whole ones.
    scope: dict[str, Any] = {"function": function}
    whole = ", ".join(f"x{n}.combine_chunks()" for n in range(len(kinds)))
    exec(f"def called({names}):\n    return function({whole})", scope)
    sql = {int: "BIGINT", float: "DOUBLE"}
    types = [sql[kind] for kind in kinds]
    connection.create_function("called", scope["called"], types, sql[returns], type="arrow")


def by_polars(label: str, table: pa.Table, called: Remote | None) -> float:
    function, kinds, _ = FUNCTIONS[label]
    names = column_names(kinds)
    frame: Any = pl.from_arrow(table)
    if called is not None:
        expression = in_polars.expression(called, *names)
    else:
        expression = pl.map_batches(
            names,
            lambda columns: pl.from_arrow(function(*(column.to_arrow() for column in columns))),
            return_dtype=pl.Int64 if kinds == [int] else pl.Float64,
        )
    return float(frame.select(expression.sum().alias("s")).item())


ENGINES = {"DuckDB": by_duckdb, "Polars": by_polars}


@dataclass
class Taken:
    """Seconds of each run of a way."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def in_process(
    engine: str,
    label: str,
    count: int,
    pid: int,
    transports: Sequence[str] = TRANSPORTS,
    runs: int = RUNS,
) -> dict[str, Taken]:
    """The ways in an engine of this process, which take turns."""
    run, table = ENGINES[engine], arguments(count)
    ways: dict[str, Remote | None] = {"native": None}
    ways |= {transport: remote(label, transport, THREADS) for transport in transports}
    taken, answers = {way: Taken() for way in ways}, set()
    for turn in range(runs + 1):
        for way, called in ways.items():
            before, begun = time.process_time() + cpu_seconds_below(pid), time.perf_counter()
            answers.add(round(run(label, table, called), 3))
            if turn > 0:
                taken[way].wall.append(time.perf_counter() - begun)
                taken[way].cpu.append(time.process_time() + cpu_seconds_below(pid) - before)
    for called in ways.values():
        if called is not None:
            called.close()
    if len(answers) != 1:
        raise RuntimeError(f"{engine}, {label}: answers differ: {answers}")
    return taken


def in_spark() -> dict[tuple[str, int], dict[str, Taken]]:
    """The same in Spark, by label and rows. Its processor time is without that of sandboxes."""
    command = [sys.executable, str(SPARK), f"{THREADS}", f"{RUNS}", *map(str, ROWS)]
    # Its workers import the native functions.
    environment = {**os.environ, "PYTHONPATH": str(BENCH)}
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    found: dict[tuple[str, int], dict[str, Taken]] = {}
    answers: dict[tuple[str, int], set[float]] = {}
    for line in done.stdout.splitlines():
        one = json.loads(line)
        key = (one["label"], one["rows"])
        taken = found.setdefault(key, {}).setdefault(one["way"], Taken())
        taken.wall.append(one["wall"])
        taken.cpu.append(one["cpu"])
        answers.setdefault(key, set()).add(round(one["answer"], 3))
    if wrong := {key: values for key, values in answers.items() if len(values) != 1}:
        raise RuntimeError(f"Spark: answers differ: {wrong}")
    return found


def queries(section: Section, server: Server) -> None:
    pid = server.status()["pid"]
    spark = in_spark()
    rows, slowest = [], dict.fromkeys([*ENGINES, "Spark"], 0.0)
    for engine in slowest:
        for label in FUNCTIONS:
            for count in ROWS:
                if engine == "Spark":
                    taken = spark[label, count]
                else:
                    taken = in_process(engine, label, count, pid)
                base = taken["native"]
                time_of = [median(taken[way].wall) / median(base.wall) for way in TRANSPORTS]
                cpu_of = [median(taken[way].cpu) / median(base.cpu) for way in TRANSPORTS]
                native = spread([1e3 * one for one in base.wall])
                if engine == "Spark":
                    # Sandboxes are not below its process.
                    cpu_of = []
                cells = [*(f"{one:.2f}" for one in [*time_of, *cpu_of]), "", ""][:4]
                rows.append([engine, label, f"{count:,}", native, *cells])
                if count == max(ROWS):
                    slowest[engine] = max(slowest[engine], time_of[1])
    section.say(
        f"{RUNS} rounds after one that is not counted, ways taking turns, {THREADS} threads of the"
        " engine and at most as many instances. *Native*: the same code as an Arrow function of the"
        " engine, its model made once for a process. Sums of all results compared. Time below 1:"
        " sandboxes compute at the same time, which the interpreter's lock prevents in one process."
        " Processor time is that of this process, the platform and all sandboxes; it is not counted"
        " in Spark."
    )
    section.table(
        [
            "engine",
            "function",
            "rows",
            "native, ms",
            "socket, time",
            "shared, time",
            "socket, processor",
            "shared, processor",
        ],
        rows,
    )
    for engine, bar in {"DuckDB": 1.05, "Spark": 1.02}.items():
        what = f"Shared memory against native in {engine}, slowest function, {max(ROWS):,} rows"
        section.promise(what, f"{bar}", f"{slowest[engine]:.2f}", slowest[engine] <= bar)


def calls_by_transport(section: Section) -> dict[str, float]:
    """Microseconds of a call with 10,000 rows by each transport."""
    columns = arguments(BATCH)
    inputs = [columns[f"x{n}"].combine_chunks() for n in range(udf_functions.INPUTS)]
    row = [column.slice(0, 1) for column in inputs]
    rows, micros = [], {}
    for transport in COMPARED:
        with remote("one of 28 inputs", transport, 1) as called:
            first = seconds(partial(called, *row))
            one = [seconds(partial(called, *row)) for _ in range(COMPARED_CALLS)]
            all_of = [seconds(partial(called, *inputs)) for _ in range(COMPARED_CALLS)]
        micros[transport] = 1e6 * median(all_of)
        spreads = [spread([1e6 * taken for taken in calls]) for calls in (one, all_of)]
        rows.append([transport, f"{1e3 * first:.0f}", *spreads])
    section.say(
        f"A function that returns the first of 28 doubles, {COMPARED_CALLS} calls of one instance."
        " The first call, of one row, leases the instance and loads what the transport needs; an"
        " instance of a function that the platform has seen is started from its zygote."
    )
    section.table(["transport", "first, ms", "1 row, us", f"{BATCH:,} rows, us"], rows)
    return micros


def queries_by_transport(section: Section, server: Server) -> None:
    """Data-intensive and compute-intensive functions by each transport (figures 3 to 5, 11)."""
    pid = server.status()["pid"]
    rows = []
    for label in FUNCTIONS:
        taken = in_process("Polars", label, COMPARED_ROWS, pid, COMPARED, COMPARED_RUNS)
        base = median(taken["native"].wall)
        ratios = [median(taken[way].wall) / base for way in COMPARED]
        rows.append([label, f"{1e3 * base:.0f}", *(f"{ratio:.2f}" for ratio in ratios)])
    section.say(
        f"The same functions in Polars, {COMPARED_ROWS:,} rows, {COMPARED_RUNS} rounds after one:"
        " the time of each transport as a multiple of that of the native function."
    )
    section.table(["function", "native, ms", *COMPARED], rows)


def transports(section: Section, server: Server) -> None:
    micros = calls_by_transport(section)
    queries_by_transport(section, server)
    best = min(micros[way] for way in COMPARED if way not in TRANSPORTS)
    ratio = best / micros["shared"]
    what = f"The fastest transport of other systems against shared memory, {BATCH:,} rows"
    section.promise(what, "1 time", f"{ratio:.2f}", ratio >= 1)


def run() -> Section:
    section = Section("Functions in other engines")
    section.commands.append("python bench/run.py udfs")
    with platform() as server:
        batches(section)
        transports(section, server)
        queries(section, server)
    return section
