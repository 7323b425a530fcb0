"""The functions of `bench/engines.py` in Spark, native and in sandboxes: a JSON line for each
function and number of rows, with the seconds of all ways.

python bench/peers/spark_functions.py queries 2 5 100000 1000000
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import ArrowUDFType, arrow_udf, col, rand
from pyspark.sql.functions import sum as total

from common.processes import cpu_seconds_below
from engine_calls import (
    BATCH,
    COMPARED,
    FOREST,
    FUNCTIONS,
    NATIVE,
    ONE,
    QUERIED,
    TEXTS,
    TRANSPORTS,
    column_names,
    in_turns,
    made,
    natives,
    remote,
)
from peers import udf_functions
from snowmelt.engines import spark as in_spark

NAME, THREADS, RUNS, *ROWS = sys.argv[1], *map(int, sys.argv[2:])
# Groups of the training, and the columns of its model: inputs, and what is to be predicted.
GROUPS, TRAINED = 16, ["x0", "x1", "x2", "x3", "y"]
# Its declared types know only functions of a few arguments.
native_udf: Any = arrow_udf


@cache
def arguments(spark: SparkSession, rows: int) -> DataFrame:
    """The same values in each run, in memory."""
    columns: list[Any] = [rand(n).alias(f"x{n}") for n in range(udf_functions.INPUTS)]
    columns.append(((rand(99) * (1 << 17)).cast("long") + (1 << 17)).alias("n"))
    columns += [col("id"), (col("id") % GROUPS).alias("g")]
    columns.append((rand(98) < rand(0)).cast("double").alias("y"))
    frame = spark.range(0, rows, numPartitions=THREADS).select(*columns).cache()
    frame.count()
    return frame


def measure(
    spark: SparkSession,
    label: str,
    ways: Mapping[str, Callable[[DataFrame], float]],
    counts: Sequence[int] = ROWS,
) -> None:
    own = os.getpid()
    small = arguments(spark, BATCH)
    for rows in counts:
        taken = in_turns(ways, arguments(spark, rows), small, lambda: cpu_seconds_below(own), RUNS)
        times = {way: asdict(one) for way, one in taken.items()}
        print(json.dumps({"label": label, "rows": rows, "taken": times}), flush=True)


def summed(called: Any, names: list[str]) -> Callable[[DataFrame], float]:
    return lambda frame: float(frame.select(total(called(*names))).collect()[0][0])


def ways(spark: SparkSession, label: str, transports: tuple[str, ...]) -> dict[str, Any]:
    """Spark's functions: native and in sandboxes."""
    kind = "long" if FUNCTIONS[label][2] is int else "double"
    found = {way: native_udf(function, returnType=kind) for way, function in natives(label).items()}
    for way in transports:
        found[way] = in_spark.register(spark, remote(label, way, 1), way)
    return found


def queries(spark: SparkSession) -> None:
    """Each function over each number of rows (figure 3)."""
    for label in QUERIED:
        transports = (*TRANSPORTS, "flight") if label == FOREST else TRANSPORTS
        names = column_names(FUNCTIONS[label][1])
        found = ways(spark, label, transports)
        measure(spark, label, {way: summed(called, names) for way, called in found.items()})


def transports(spark: SparkSession) -> None:
    """Each function by each transport (figures 4 and 5). The most rows are for what takes little
    for each."""
    *fewer, most = ROWS
    for label, (_, kinds, _) in FUNCTIONS.items():
        names = column_names(kinds)
        found = {way: summed(called, names) for way, called in ways(spark, label, COMPARED).items()}
        measure(spark, label, found, fewer)
        if label in (FOREST, ONE):
            fast = {way: query for way, query in found.items() if way not in TEXTS}
            measure(spark, label, fast, [most])


def groups(spark: SparkSession) -> None:
    """A model for each group (section 5.2)."""
    aggregate = ArrowUDFType.GROUPED_AGG
    found = {NATIVE: native_udf(udf_functions.train, returnType="binary", functionType=aggregate)}
    for way in (*TRANSPORTS, "flight"):
        lists = [list[float]] * len(TRAINED)
        called = made(udf_functions.train_each, lists, bytes, way, memory="1GiB")
        found[way] = in_spark.register_aggregate(spark, called, way)

    def trained(called: Any) -> Callable[[DataFrame], float]:
        def models(frame: DataFrame) -> float:
            rows = frame.groupBy("g").agg(called(*TRAINED)).collect()
            return udf_functions.weights([bytes(row[1]) for row in rows])

        return models

    measure(spark, "groups", {way: trained(called) for way, called in found.items()})


def joins(spark: SparkSession) -> None:
    """A self-join with the function on both sides, of other columns (section 5.2)."""
    names = column_names(FUNCTIONS[FOREST][1])

    def joined(called: Any) -> Callable[[DataFrame], float]:
        def query(frame: DataFrame) -> float:
            left = frame.select("id", called(*names).alias("a"))
            right = frame.select("id", called(*reversed(names)).alias("b"))
            return float(left.join(right, "id").select(total(col("a") * col("b"))).collect()[0][0])

        return query

    found = ways(spark, FOREST, (*TRANSPORTS, "flight"))
    measure(spark, "joins", {way: joined(called) for way, called in found.items()})


def main() -> None:
    builder = SparkSession.builder.master(f"local[{THREADS}]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": f"{THREADS}",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    {"queries": queries, "transports": transports, "groups": groups, "joins": joins}[NAME](spark)
    spark.stop()


if __name__ == "__main__":
    main()
