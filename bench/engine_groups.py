"""Queries with groups and joins of user functions in Spark and DuckDB (CAGE 5.2)."""

import os
from typing import Any

import duckdb
import pyarrow as pa

import engine_paper
from common.figures import Section, median, spread
from engine_calls import (
    BATCH,
    FOREST,
    FUNCTIONS,
    NATIVE,
    RELOADED,
    THREADS,
    TRANSPORTS,
    Taken,
    arguments,
    column_names,
    in_turns,
    remote,
    spark,
)
from engine_queries import CHUNKS, register
from peers import udf_functions
from snowmelt.engines import Remote

GROUP_ROWS = int(os.environ.get("SNOWMELT_BENCH_GROUP_ROWS", "400000"))
JOIN_ROWS = int(os.environ.get("SNOWMELT_BENCH_JOIN_ROWS", "200000"))
WAYS = (*TRANSPORTS, "flight")


def joined(called: Any, table: pa.Table) -> float:
    """A self-join in DuckDB with the function on both sides, of other columns."""
    names = column_names(FUNCTIONS[FOREST][1])
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {THREADS}")
        connection.register("t", table)
        register(connection, FOREST, called)
        sides = [f"(select id, called({', '.join(one)}) s from t)" for one in (names, names[::-1])]
        sql = f"select sum(a.s * b.s) from {sides[0]} a join {sides[1]} b on a.id = b.id"
        return float(connection.sql(sql).fetchall()[0][0])


def numbered(table: pa.Table) -> pa.Table:
    return table.append_column("id", pa.array(range(len(table))))


def in_duckdb() -> dict[str, Taken]:
    called: dict[str, Any] = {NATIVE: udf_functions.forest}
    called |= {way: remote(FOREST, way, THREADS) for way in WAYS}

    def way(function: Any) -> Any:
        return lambda table: joined(function, table)

    ways = {name: way(function) for name, function in called.items()}
    try:
        whole = numbered(arguments(JOIN_ROWS, CHUNKS))
        return in_turns(ways, whole, numbered(arguments(BATCH)))
    finally:
        for function in called.values():
            if isinstance(function, Remote):
                function.close()


def run(section: Section) -> None:
    groups = spark("groups", GROUP_ROWS)["groups", GROUP_ROWS]
    joins = spark("joins", JOIN_ROWS)["joins", JOIN_ROWS]
    paper = {"flight": f"{engine_paper.JOIN}"}
    rows = []
    for engine, query, taken, by_flight in [
        ("Spark", "training of a model for each group", groups, f"{engine_paper.GROUPS:.2f}"),
        ("Spark", "self-join, scoring of both sides", joins, paper["flight"]),
        ("DuckDB", "self-join, scoring of both sides", in_duckdb(), paper["flight"]),
    ]:
        base = taken[NATIVE].wall
        ratios = [
            f"{median(taken[way].wall) / median(base):.2f}" if way in taken else ""
            for way in (RELOADED, *WAYS)
        ]
        native = spread([1e3 * one for one in base])
        rows.append([engine, query, native, *ratios, by_flight])
    section.say(
        f"Queries with functions, as a multiple of the time with the native one. *Training*:"
        f" {GROUP_ROWS:,} rows in 16 groups; for each one a logistic regression, which the function"
        " returns pickled; a group is one call. The paper's training is scikit-learn's on a"
        " machine whose processors are busy, and takes 2.0 times as long by Flight and 8 times by"
        " JSON, which does not pass lists here. *Self-join*:"
        f" {JOIN_ROWS:,} rows by their number, {FOREST} on each side."
    )
    heads = ["engine", "query", "native, ms", "model for each batch", "socket", "shared", "Flight"]
    section.table([*heads, "the paper's Flight"], rows)
