"""A Spark session that answers queries from its standard input: one JSON object a line, each way.

python bench/peers/spark_session.py 2 lineitem orders
"""

import json
import os
import sys
import time

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

THREADS, TABLES = sys.argv[1], sys.argv[2:]
# Of the JVM, which does all of the work: a third of the memory of the machine.
MEMORY = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 3 >> 20}m"


def answered(spark: SparkSession, request: dict[str, str]) -> dict[str, float]:
    """Seconds of a query, from its text to its rows here; or other tables for later ones."""
    if folder := request.get("tables"):
        for table in TABLES:
            spark.read.parquet(f"{folder}/{table}").createOrReplaceTempView(table)
        return {}
    begun = time.perf_counter()
    table = spark.sql(request["sql"]).toArrow()
    wall = time.perf_counter() - begun
    if path := request.get("answer"):
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return {"wall": wall}


def main() -> None:
    builder = SparkSession.builder.master(f"local[{THREADS}]")
    for name, value in {
        "spark.driver.memory": MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    print(json.dumps({"version": spark.version}), flush=True)
    for line in sys.stdin:
        try:
            said: dict[str, float | str] = dict(answered(spark, json.loads(line)))
        except PySparkException as error:
            said = {"error": str(error).splitlines()[0]}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
