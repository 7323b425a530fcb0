"""The functions of `bench/engines.py` in Spark, native and in sandboxes: JSON lines of seconds.

python bench/peers/spark_functions.py 2 5 100000 1000000
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import arrow_udf, rand
from pyspark.sql.functions import sum as total

from common.processes import cpu_seconds_below
from engines import FUNCTIONS, TRANSPORTS, column_names, remote
from snowmelt.engines import spark as in_spark

THREADS, RUNS, *ROWS = map(int, sys.argv[1:])


def arguments(spark: SparkSession, rows: int) -> DataFrame:
    """The same values in each run, in memory."""
    columns: list[Any] = [rand(n).alias(f"x{n}") for n in range(28)]
    numbers = ((rand(99) * (1 << 20)).cast("long") + (1 << 20)).alias("n")
    frame = spark.range(0, rows, numPartitions=THREADS).select(*columns, numbers).cache()
    frame.count()
    return frame


def main() -> None:
    builder = SparkSession.builder.master(f"local[{THREADS}]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "4g",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    own = os.getpid()
    for rows in ROWS:
        frame = arguments(spark, rows)
        for label, (function, kinds, returns) in FUNCTIONS.items():
            kind = "long" if returns is int else "double"
            # Its declared types know only functions of a few arguments.
            native: Any = arrow_udf
            ways = {"native": native(function, returnType=kind)}
            for transport in TRANSPORTS:
                ways[transport] = in_spark.register(spark, remote(label, transport, 1), transport)
            names = column_names(kinds)
            for turn in range(RUNS + 1):
                for way, called in ways.items():
                    before, begun = cpu_seconds_below(own), time.perf_counter()
                    answer = frame.select(total(called(*names))).collect()[0][0]
                    wall, used = time.perf_counter() - begun, cpu_seconds_below(own) - before
                    if turn > 0:
                        line = {"label": label, "rows": rows, "way": way, "wall": wall}
                        print(json.dumps({**line, "cpu": used, "answer": answer}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
