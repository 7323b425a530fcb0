"""An application of Spark that calls functions in sandboxes: `spark_application.py MASTER TASK`.

`answers` prints answers as JSON, `waits` calls a function that does not end. The tests import the
functions, for the same answers by Snowmelt.
"""

import json
import sys
from typing import Any, TypedDict

import snowmelt as sm

GROUPS, ROWS = 7, 4_000
# The name of the thread of a call that does not end; the kernel keeps 15 bytes.
WAITS = "e2e-spark-waits"


class Sale(TypedDict):
    g: int
    n: int
    amount: float


class Price(TypedDict):
    g: int
    price: float


class Best(TypedDict):
    g: int | None
    n: int
    value: float


@sm.udf
def grade(amount: float, name: str | None) -> str | None:
    return None if name is None else f"{name}:{round(amount * 2)}"


@sm.udf
def middle(amounts: list[float]) -> float | None:
    """The median, and null if a value is missing."""
    if None in amounts:
        return None
    ordered = sorted(amounts)
    return ordered[len(ordered) // 2]


@sm.udf
def best(sales: list[Sale]) -> list[Best]:
    """The three largest sales of a group."""
    ordered = sorted(sales, key=lambda sale: (-(sale["amount"] or 0.0), sale["n"]))
    return [{"g": s["g"], "n": s["n"], "value": s["amount"] or 0.0} for s in ordered[:3]]


@sm.udf
def priced(sales: list[Sale] | None, prices: list[Price] | None) -> list[Best]:
    """For each group that has a price, its number of sales and their total at that price."""
    amounts = sorted(sale["amount"] or 0.0 for sale in sales or [])
    total = sum(amounts)
    return [{"g": p["g"], "n": len(amounts), "value": total * p["price"]} for p in prices or []]


@sm.udf(timeout="10m")
def waits(n: int) -> int:
    import ctypes
    import time

    ctypes.CDLL(None).prctl(15, WAITS.encode())  # PR_SET_NAME
    time.sleep(600)
    return n


def sales() -> list[dict[str, Any]]:
    """Rows in groups, one of which has a null."""
    return [
        {
            "g": n % GROUPS,
            "n": n,
            "amount": None if n == 5 else (n * 7919 % 1000) / 8,
            "name": None if n % 13 == 0 else f"row {n}",
        }
        for n in range(ROWS)
    ]


def prices() -> list[dict[str, Any]]:
    """Some groups have no price, and one price has no group."""
    return [{"g": g, "price": g / 4} for g in (0, 2, 3, GROUPS + 1)]


def answers(session: Any) -> dict[str, Any]:
    from snowmelt.engines import spark as in_spark

    schema = "g bigint, n bigint, amount double, name string"
    sold = session.createDataFrame([tuple(row.values()) for row in sales()], schema)
    cost = session.createDataFrame([tuple(row.values()) for row in prices()], "g int, price double")
    sold.repartition(4).createOrReplaceTempView("sales")
    in_spark.register(session, grade)
    in_spark.register_aggregate(session, middle)
    asked = {
        "grade": session.sql("select n, grade(amount, name) v from sales order by n"),
        "middle": session.sql("select g, middle(amount) v from sales group by g order by g"),
        "of all": session.sql("select middle(amount) v from sales where n > 5"),
        "best": in_spark.apply(sold.groupBy("g"), best).orderBy("g", "n"),
        "priced": in_spark.cogroup(sold.groupBy("g"), cost.groupBy("g"), priced).orderBy("g"),
    }
    found = {name: [list(row) for row in frame.collect()] for name, frame in asked.items()}
    executors = session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    # One of them is the driver.
    return {**found, "executors": len(executors) - 1}


def main(master: str, task: str) -> None:
    from spark_session import WORKERS, session

    from snowmelt.engines import spark as in_spark

    # Tasks begin once both workers have an executor.
    registered = {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.cores.max": str(WORKERS),
    }
    with session(master, **registered) as spark:
        if task == "answers":
            print(json.dumps(answers(spark)), flush=True)
            return
        in_spark.register(spark, waits)
        spark.range(0, WORKERS, numPartitions=WORKERS).selectExpr("waits(id)").collect()


if __name__ == "__main__":
    main(*sys.argv[1:])
