"""Functions in queries of DuckDB, Polars and Spark: native, and in sandboxes (CAGE 4, figure 3)."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

import engine_paper
from common import plots
from common.figures import Section, median, spread
from common.processes import cpu_seconds_below
from common.server import Server
from engine_calls import (
    BATCH,
    FACTOR,
    FOREST,
    FUNCTIONS,
    LEAST_RUNS,
    NATIVE,
    QUERIED,
    RELOADED,
    ROWS,
    RUNS,
    THREADS,
    TRANSPORTS,
    Taken,
    arguments,
    column_names,
    in_turns,
    natives,
    ratio,
    remote,
    spark,
)
from snowmelt.engines import Remote
from snowmelt.engines import duckdb as in_duckdb
from snowmelt.engines import polars as in_polars

# Of an Arrow table, so that both threads of DuckDB have some.
CHUNKS = 16
SQL_TYPES = {int: "BIGINT", float: "DOUBLE"}
# The bars: time as a multiple of the native function's.
SHARED_BARS = {"DuckDB": 1.05, "Spark": 1.02}
SOCKET_BARS = {"DuckDB": 1.15, "Spark": 1.08}
FLIGHT_BAR = 1.15
# The paper's words for two of the functions.
PROFILES = {FOREST: "data-intensive", FACTOR: "compute-intensive"}

Results = dict[tuple[str, str, int], dict[str, Taken]]


def transports(label: str) -> Sequence[str]:
    """Those by which the engines call a function: the paper's own one for the paper's function."""
    return (*TRANSPORTS, "flight") if label == FOREST else TRANSPORTS


def register(connection: Any, label: str, called: Any, name: str = "called") -> None:
    """A function of this process, or one in sandboxes."""
    if isinstance(called, Remote):
        in_duckdb.register(connection, called, name)
        return
    _, kinds, returns = FUNCTIONS[label]
    names = ", ".join(f"x{n}" for n in range(len(kinds)))
    # DuckDB gives chunked arrays; sandboxes give whole ones.
    scope: dict[str, Any] = {"function": called}
    whole = ", ".join(f"x{n}.combine_chunks()" for n in range(len(kinds)))
    exec(f"def called({names}):\n    return function({whole})", scope)
    types = [SQL_TYPES[kind] for kind in kinds]
    made = scope["called"]
    connection.create_function(name, made, types, SQL_TYPES[returns], type="arrow")


def by_duckdb(label: str, called: Any, table: pa.Table) -> float:
    """Registers, and gives the sum of the results; the native function runs in this process."""
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {THREADS}")
        connection.register("t", table)
        register(connection, label, called)
        sql = f"select sum(called({', '.join(column_names(FUNCTIONS[label][1]))})) from t"
        return float(connection.sql(sql).fetchall()[0][0])


def by_polars(label: str, called: Any, table: pa.Table) -> float:
    _, kinds, returns = FUNCTIONS[label]
    names = column_names(kinds)
    frame: Any = pl.from_arrow(table)
    if isinstance(called, Remote):
        expression = in_polars.expression(called, *names)
    else:
        expression = pl.map_batches(
            names,
            lambda columns: pl.from_arrow(called(*(column.to_arrow() for column in columns))),
            return_dtype=pl.Int64 if returns is int else pl.Float64,
        )
    return float(frame.select(expression.sum().alias("s")).item())


ENGINES: dict[str, tuple[Callable[..., float], int]] = {
    "DuckDB": (by_duckdb, CHUNKS),
    "Polars": (by_polars, 1),
}


def in_process(engine: str, label: str, count: int, pid: int) -> dict[str, Taken]:
    """The ways in an engine of this process."""
    run, chunks = ENGINES[engine]
    called: dict[str, Any] = dict(natives(label))
    called |= {way: remote(label, way, THREADS) for way in transports(label)}
    ways = {way: partial(run, label, function) for way, function in called.items()}
    try:
        return in_turns(
            ways,
            arguments(count, chunks),
            arguments(BATCH),
            lambda: time.process_time() + cpu_seconds_below(pid),
        )
    finally:
        for function in called.values():
            if isinstance(function, Remote):
                function.close()


def measured(server: Server) -> Results:
    """By engine, function and rows; in Polars with the fewest rows only."""
    pid, results = server.status()["pid"], Results()
    for label in QUERIED:
        for count in ROWS:
            results["DuckDB", label, count] = in_process("DuckDB", label, count, pid)
        results["Polars", label, min(ROWS)] = in_process("Polars", label, min(ROWS), pid)
    for (label, count), taken in spark("queries", *ROWS).items():
        results["Spark", label, count] = taken
    return results


def cells(engine: str, taken: Mapping[str, Taken]) -> list[str]:
    """Ratios to the native function: of time, and of processor time."""
    ways = [RELOADED, *TRANSPORTS, "flight"]
    times = [f"{ratio(taken, way):.2f}" if way in taken else "" for way in ways]
    # In Spark, sandboxes are not below its process.
    used = ["", ""]
    if engine != "Spark":
        base = median(taken[NATIVE].cpu)
        used = [f"{median(taken[way].cpu) / base:.2f}" for way in TRANSPORTS]
    return [*times, *used]


def table(section: Section, results: Results) -> None:
    section.say(
        f"{LEAST_RUNS} to {RUNS} rounds after one with {BATCH:,} rows that is not counted, ways"
        f" taking turns, {THREADS} threads of the engine and at most as many instances. *Native*:"
        " the same code as an Arrow function of the engine, its model made once for a process."
        " *Model for each batch*: the same with a model that is unpickled for each batch, as the"
        " paper's native function loads it. All others are multiples of native; sums of all"
        " results compared. Time below 1: sandboxes compute at the same time, which the"
        " interpreter's lock prevents in the process of DuckDB or Polars. Processor time is that of"
        " this process, the platform and all sandboxes; it is not counted in Spark."
    )
    order = ["DuckDB", "Polars", "Spark"]
    keys = sorted(results, key=lambda key: (order.index(key[0]), QUERIED.index(key[1]), key[2]))
    rows = [
        [
            engine,
            label,
            f"{count:,}",
            spread([1e3 * one for one in results[engine, label, count][NATIVE].wall]),
            *cells(engine, results[engine, label, count]),
        ]
        for engine, label, count in keys
    ]
    heads = ["engine", "function", "rows", "native, ms", "model for each batch", "socket", "shared"]
    heads += ["Flight", "socket, processor", "shared, processor"]
    section.table(heads, rows)


def promises(section: Section, results: Results) -> None:
    most = max(ROWS)
    # The slowest function computes nothing; the paper has only the others.
    sets = {"slowest function": QUERIED, "the slower one of the paper's functions": tuple(PROFILES)}
    for engine, bar in SHARED_BARS.items():
        for name, labels in sets.items():
            worst = max(ratio(results[engine, label, most], "shared") for label in labels)
            what = f"Shared memory against native in {engine}, {name}, {most:,} rows"
            section.promise(what, f"{bar}", f"{worst:.2f}", worst <= bar)
    bars = [("The socket", "socket", engine, bar) for engine, bar in SOCKET_BARS.items()]
    bars += [("Flight", "flight", engine, FLIGHT_BAR) for engine in SOCKET_BARS]
    for name, way, engine, bar in bars:
        found = ratio(results[engine, FOREST, most], way)
        what = f"{name} against native in {engine}, {FOREST}, {most:,} rows"
        section.promise(what, f"{bar}", f"{found:.2f}", found <= bar)


def figure_3(section: Section, results: Results) -> None:
    lines: dict[str, dict[int, float]] = {}
    for label, profile in PROFILES.items():
        for way in (NATIVE, *transports(label)):
            taken = {count: results["Spark", label, count][way].wall for count in ROWS}
            lines[f"{profile}, {way}"] = {n: 1e3 * median(wall) for n, wall in taken.items()}
    section.plot(
        "udfs-figure-3-times",
        "The paper's figure 3: milliseconds of a query of Spark by rows, native and in sandboxes",
        plots.growth("rows", "ms", lines),
    )
    groups, bars = [], dict[str, list[float | None]]()
    names = ("shared memory", "socket", "Flight", "paper: Flight")
    for name in (*names, "paper: remote JSON, least", "paper: remote JSON, most"):
        bars[name] = []
    for label, profile in PROFILES.items():
        for count in ROWS:
            taken_ = results["Spark", label, count]
            groups.append(f"{profile},\n{count:,} rows")
            ours = [ratio(taken_, way) if way in taken_ else None for way in ("shared", "socket")]
            flight = ratio(taken_, "flight") if "flight" in taken_ else None
            values = [*ours, flight, engine_paper.LOCAL, *engine_paper.REMOTE[profile]]
            for name, value in zip(bars, values, strict=True):
                bars[name].append(value)
    section.plot(
        "udfs-figure-3",
        "Figure 3: time of a query of Spark as a multiple of the native function's, beside what"
        " the paper's text says of all sizes",
        plots.bars("times native", groups, bars),
    )
    section.say(
        "The paper's remote functions run on machines of a cloud, by JSON; ours are on this"
        " machine. The figure's seconds are not in its text."
    )


def run(section: Section, server: Server) -> None:
    results = measured(server)
    table(section, results)
    promises(section, results)
    figure_3(section, results)
