"""A function in each engine of `docs/reference/udf-conformance.md`: the values of a column."""

import contextlib
import re
import traceback
from collections.abc import Callable
from typing import Any

import datafusion
import duckdb
import ibis
import pandas as pd
import polars as pl
import pyarrow as pa

import snowmelt as sm
from snowmelt.engines import datafusion as in_datafusion
from snowmelt.engines import duckdb as in_duckdb
from snowmelt.engines import ibis as in_ibis
from snowmelt.engines import pandas as in_pandas
from snowmelt.engines import polars as in_polars
from snowmelt.engines import spark as in_spark

# The function for a column `x` of a table whose column `n` has the order of rows.
Engine = Callable[[Any, pa.Table], pa.ChunkedArray]


def by_snowmelt(called: Any, table: pa.Table) -> pa.ChunkedArray:
    return sm.sql("select n, same(x) y from t order by n", udfs=[called], t=table).arrow()["y"]


def by_duckdb(called: Any, table: pa.Table) -> pa.ChunkedArray:
    with duckdb.connect() as connection:
        in_duckdb.register(connection, called)
        connection.register("t", table)
        return connection.sql("select n, same(x) y from t order by n").to_arrow_table()["y"]


def by_polars(called: Any, table: pa.Table) -> pa.ChunkedArray:
    frame: Any = pl.from_arrow(table)
    return frame.select(in_polars.expression(called, "x").alias("y")).to_arrow()["y"]


def by_pandas(called: Any, table: pa.Table) -> pa.ChunkedArray:
    """Columns with Arrow's types: those of numpy have no nulls for numbers."""
    series = table["x"].to_pandas(types_mapper=pd.ArrowDtype)
    result = in_pandas.call(called, pd.Series(series))
    return pa.chunked_array([pa.Array.from_pandas(result)])


def by_datafusion(called: Any, table: pa.Table) -> pa.ChunkedArray:
    context = datafusion.SessionContext()
    in_datafusion.register(context, called)
    context.from_arrow(table, "t")
    answer = context.sql("select n, same(x) as y from t order by n").to_arrow_table()
    return answer["y"]


def by_ibis(called: Any, table: pa.Table) -> pa.ChunkedArray:
    there, t = in_ibis.function(called), ibis.memtable(table)
    asked = t.select("n", y=there(t.x)).order_by("n")
    return ibis.duckdb.connect().to_pyarrow(asked)["y"]


def by_spark(session: Any) -> Engine:
    def run(called: Any, table: pa.Table) -> pa.ChunkedArray:
        in_spark.register(session, called)
        # Spark loses the rows behind an empty chunk of a table.
        session.createDataFrame(table.combine_chunks()).createOrReplaceTempView("t")
        return session.sql("select n, same(x) y from t order by n").toArrow()["y"]

    return run


ENGINES: dict[str, Engine] = {
    "Snowmelt": by_snowmelt,
    "DuckDB": by_duckdb,
    "Polars": by_polars,
    "pandas": by_pandas,
    "DataFusion": by_datafusion,
    "ibis": by_ibis,
}

# Whose exceptions are refusals by the engine itself; others are faults of the tests or of ours.
OF_ENGINES = ("duckdb", "polars", "datafusion", "ibis", "pyspark", "pyarrow", "py4j")


def refusal(error: BaseException) -> str:
    """The code of our refusal, or how the engine itself refuses. Raises the error if it is
    neither."""
    if isinstance(error, sm.Error):
        return error.code
    if found := re.search(r"\bSM-\d{4}\b", text_of(error)):
        return found[0]
    if type(error).__module__ == "pyo3_runtime":
        return "panics"
    if _is_of_engine(error) and not isinstance(error, (AttributeError, NameError)):
        return "refused"
    raise error


def text_of(error: BaseException) -> str:
    """Some of ibis are shown only by a package that it does not require."""
    with contextlib.suppress(ModuleNotFoundError):
        return str(error)
    return ""


def _is_of_engine(error: BaseException) -> bool:
    """By its class, or by the module that raised it."""
    modules = [type(error).__module__]
    if frames := list(traceback.walk_tb(error.__traceback__)):
        modules.append(frames[-1][0].f_globals.get("__name__", ""))
    return any(module.partition(".")[0].lstrip("_") in OF_ENGINES for module in modules)


def cell(found: pa.ChunkedArray, expected: pa.ChunkedArray, nan_for_null: bool = False) -> str:
    """`same`, or the type with which the engine holds the same values.

    Raises `AssertionError` for other values: no engine may give them silently. `nan_for_null`: a
    float that is null may be NaN, as documented for numpy.
    """
    if nan_for_null and pa.types.is_floating(expected.type) and found.null_count == 0:
        values = [None if value != value else value for value in found.to_pylist()]
        assert values == expected.to_pylist(), _different(found, expected)
        return "NaN for null"
    if found.type == expected.type:
        assert found.to_pylist() == expected.to_pylist(), _different(found, expected)
        assert found.equals(expected), _different(found, expected)
        return "same"
    back = None
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        back = found.cast(expected.type)
    if back is None or not back.equals(expected):
        assert found.to_pylist() == expected.to_pylist(), _different(found, expected)
    return f"as {shown(found.type)}"


def shown(kind: pa.DataType) -> str:
    """A type without the names of the items of lists."""
    text = re.sub(r"(item|element|l): ", "", str(kind))
    return re.sub(r"struct<.*?>", "struct", text)


def _different(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> str:
    return f"{found.type} {found.to_pylist()} instead of {expected.type} {expected.to_pylist()}"
