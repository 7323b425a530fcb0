"""Transports of a function's batches: microseconds of a call, queries (CAGE 5.2, figures 4 and 5),
and which one is good enough for which function (figure 11).
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

import engine_paper
from common import plots
from common.figures import Section, median, short, spread
from engine_calls import (
    BATCH,
    COMPARED,
    FACTOR,
    FACTOR_OF_28,
    FOREST,
    FUNCTIONS,
    LEAST_RUNS,
    NATIVE,
    TRANSPORTS,
    Taken,
    made,
    seconds,
    spark,
)
from peers import udf_functions

# Of queries with all transports; and as multiples of it, those from which a row's time is taken.
COMPARED_ROWS = int(os.environ.get("SNOWMELT_BENCH_TRANSPORT_ROWS", "50000"))
LEAST, MOST = 0.2, 10
# Numbers of columns of doubles.
WIDTHS = (1, 8, 28, 100)
DOUBLE_BYTES = 8
# Calls of a transport, until they take as long.
MAX_CALLS, LEAST_CALLS, CALLS_S = 50, 3, 1.5
# A transport is good enough if it adds no more than this part of the function's own time.
ADDED = 0.1
# Microseconds of computation for each row, in the table of what is good enough.
COMPUTED_US = (0.1, 1, 10, 100, 1_000)

Micros = dict[tuple[str, int], float]


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
            kinds = [kind] * len(columns)
            with made(udf_functions.first, kinds, kind, transport) as called:
                calls = [seconds(partial(called, *columns)) for _ in range(120)]
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
        " thread and one instance, 100 calls after 20. Bytes are those of arguments and result."
    )
    section.table(
        ["arguments", "socket, us", "shared memory, us", "socket, GB/s", "shared, GB/s", "ratio"],
        rows,
    )
    best = max(ratios)
    section.promise("Shared memory against the socket", "2 times", f"up to {best:.2f}", best >= 2)


def calls(section: Section) -> Micros:
    """Microseconds of a call of 10,000 rows, by transport and width."""
    numbers = np.random.default_rng(1)
    columns = [pa.array(numbers.random(BATCH)) for _ in range(max(WIDTHS))]
    micros, rows = Micros(), []
    for transport in COMPARED:
        cells = []
        for width in WIDTHS:
            inputs, kinds = columns[:width], [float] * width
            row = [column.slice(0, 1) for column in inputs]
            with made(udf_functions.first, kinds, float, transport) as called:
                called(*row)
                one = [seconds(partial(called, *row)) for _ in range(LEAST_CALLS * 3)]
                whole = [seconds(partial(called, *inputs))]
                while len(whole) < LEAST_CALLS or (len(whole) < MAX_CALLS and sum(whole) < CALLS_S):
                    whole.append(seconds(partial(called, *inputs)))
            micros[transport, width] = 1e6 * median(whole)
            if width == udf_functions.INPUTS:
                cells.append(spread([1e6 * taken for taken in one]))
            cells.append(spread([1e6 * taken for taken in whole]))
        rows.append([transport, *cells])
    section.say(
        f"A function that returns its first argument by each transport, one instance,"
        f" {LEAST_CALLS} to {MAX_CALLS} calls, microseconds."
    )
    heads = [f"{BATCH:,} rows, doubles: {width}" for width in WIDTHS]
    place = WIDTHS.index(udf_functions.INPUTS)
    heads.insert(place, f"1 row, doubles: {udf_functions.INPUTS}")
    section.table(["transport", *heads], rows)
    own = micros["shared", udf_functions.INPUTS]
    best = min(micros[way, udf_functions.INPUTS] for way in COMPARED if way not in TRANSPORTS)
    what = f"The fastest transport of other systems against shared memory, {BATCH:,} rows"
    section.promise(what, "1 time", f"{best / own:.2f}", best >= own)
    return micros


def figure_11(section: Section, micros: Micros) -> None:
    """The computation from which a transport is good enough, by bytes."""
    # A call of the native function itself takes no time for what returns its argument.
    least = {key: taken / BATCH / ADDED for key, taken in micros.items()}
    section.plot(
        "udfs-figure-11",
        "In place of the paper's figure 11: microseconds that a function has to compute for a row,"
        f" by its bytes, for a transport to add at most {ADDED:.0%}",
        plots.growth(
            "bytes of a row",
            "us of computation for a row",
            {
                transport: {width * DOUBLE_BYTES: least[transport, width] for width in WIDTHS}
                for transport in COMPARED
            },
        ),
    )
    rows = []
    for width in WIDTHS:
        cells = []
        for computed in COMPUTED_US:
            good = [way for way in COMPARED if least[way, width] <= computed]
            cells.append("all" if len(good) == len(COMPARED) else ", ".join(good) or "none")
        rows.append([f"{width * DOUBLE_BYTES}", *cells])
    section.say(
        f"Which transports add at most {ADDED:.0%} to the time of a function, by the bytes of a row"
        " and its computation, from the calls above: one instance, which does not compute while a"
        " batch is passed. The paper's figure 11 is a flow chart without numbers: Flight for"
        " functions that compute little, any transport for those that compute much."
    )
    section.table(["bytes of a row", *(f"{us:g} us" for us in COMPUTED_US)], rows)


Found = Mapping[tuple[str, int], Mapping[str, Taken]]


def row_seconds(found: Found, label: str, way: str) -> float:
    """The time of a further row: what a query takes by itself is left out."""
    counts = sorted(n for (name, n), taken in found.items() if name == label and way in taken)
    least, most = (median(found[label, n][way].wall) for n in (counts[0], counts[-1]))
    return (most - least) / (counts[-1] - counts[0])


def row_ratio(found: Found, label: str, way: str) -> float:
    return row_seconds(found, label, way) / row_seconds(found, label, NATIVE)


def figure_4(section: Section, found: Found) -> None:
    ours: list[float | None] = [row_ratio(found, FOREST, way) for way in COMPARED]
    paper = [engine_paper.TRANSPORTS.get(way) for way in COMPARED]
    names = [
        f"{way}\n({engine_paper.NAMES[way]})" if way in engine_paper.NAMES else way
        for way in COMPARED
    ]
    section.plot(
        "udfs-figure-4",
        "Figure 4: time of a row of scoring in Spark by each transport, as a multiple of the native"
        " function's; the paper's with 10 million rows",
        plots.bars("times native", names, {"ours": ours, "the paper's text": paper}),
    )


def figure_5(section: Section, found: Found) -> None:
    groups = [FOREST, FACTOR, FACTOR_OF_28]
    bars: dict[str, Sequence[float | None]] = {
        "JSON": [row_ratio(found, label, "json") for label in groups],
        "shared memory": [row_ratio(found, label, "shared") for label in groups],
        "paper: Web Server": [engine_paper.TRANSPORTS["json"], None, None],
    }
    section.plot(
        "udfs-figure-5",
        "Figure 5: time of a row by JSON over HTTP on this machine, by kinds of functions, as a"
        " multiple of the native function's. The paper's text has a number for the first only",
        plots.bars("times native", [label.replace(" of ", "\nof ", 1) for label in groups], bars),
    )


def queries(section: Section) -> None:
    counts = [int(COMPARED_ROWS * times) for times in (LEAST, 1, MOST)]
    found = spark("transports", *counts, runs=LEAST_RUNS)
    rows = []
    for label in FUNCTIONS:
        ratios = [f"{row_ratio(found, label, way):.2f}" for way in COMPARED]
        rows.append([label, short(1e6 * row_seconds(found, label, NATIVE)), *ratios])
    paper = [engine_paper.TRANSPORTS.get(way) for way in COMPARED]
    rows.append(["the paper's scoring", "", *("" if one is None else f"{one}" for one in paper)])
    section.say(
        f"The functions in Spark, batches of {BATCH:,} rows, {LEAST_RUNS} rounds. The time of a"
        " row is the difference between a query of many rows and one of few, so that what a query"
        " takes by itself, which ten million rows of the paper hide, is left out:"
        f" {counts[1]:,} and {counts[0]:,} rows; {counts[2]:,} instead of {counts[1]:,} for the"
        " functions that compute little, except by JSON and MLflow. Transports as multiples of the"
        " native function. The paper's Parquet has batches of 100,000 rows, and its native function"
        " loads the model for each batch, as its Web Server does and its MLflow does not."
    )
    section.table(["function", "native, us for a row", *COMPARED], rows)
    figure_4(section, found)
    figure_5(section, found)


def run(section: Section) -> None:
    batches(section)
    figure_11(section, calls(section))
    queries(section)
