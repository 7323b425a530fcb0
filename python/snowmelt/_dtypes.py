"""Answers as frames of pandas and polars, with the column types of the input frames.

Invariant: numbers never change. A column of integers or booleans with nulls gets a nullable pandas
type (`Int64`, `boolean`), because the plain types have no null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def known(given: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The types of columns by name, except names that have different types in two tables."""
    found: dict[str, Any] = {}
    for types in given:
        for name, dtype in types.items():
            found[name] = dtype if found.get(name, dtype) == dtype else None
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def of_pandas(frame: Any) -> dict[str, Any]:
    """Columns whose type is lost in Arrow: nullable types, strings, categories."""
    import pandas as pd

    return {
        str(name): dtype
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, (pd.CategoricalDtype, pd.StringDtype)) or _masked(dtype)
    }


def of_polars(frame: Any) -> dict[str, Any]:
    """Columns whose type is lost in Arrow: enums."""
    import polars as pl

    return {name: dtype for name, dtype in frame.schema.items() if isinstance(dtype, pl.Enum)}


def to_pandas(table: Any, types: Mapping[str, Any]) -> Any:
    """The table as a `pandas.DataFrame`."""
    # Integers next to a null inside of lists and structs would become floats.
    frame = table.to_pandas(integer_object_nulls=True)
    for index, field in enumerate(table.schema):
        dtype = _wanted(table.column(index), types.get(field.name))
        if dtype is not None:
            frame.isetitem(index, _as(table.column(index), dtype))
    return frame


def _wanted(column: Any, given: Any) -> Any:
    """The type of the column if it is not the default of the conversion, otherwise None."""
    import pandas as pd
    import pyarrow as pa

    at, kind = pa.types, column.type
    if isinstance(given, pd.CategoricalDtype) and at.is_dictionary(kind):
        values = column.unify_dictionaries().chunk(0).dictionary if column.num_chunks else []
        return given if set(pd.Index(values)) <= set(given.categories) else None
    if isinstance(given, pd.StringDtype) and (at.is_string(kind) or at.is_large_string(kind)):
        return given
    if _masked(given) and kind == pa.from_numpy_dtype(given.numpy_dtype):
        return given
    if column.null_count and (at.is_integer(kind) or at.is_boolean(kind)):
        name = "boolean" if at.is_boolean(kind) else str(kind).replace("int", "Int")
        return pd.api.types.pandas_dtype(name.replace("uI", "UI"))
    return None


def _masked(dtype: Any) -> bool:
    return hasattr(dtype, "numpy_dtype") and str(dtype) in _MASKED


_MASKED = {"boolean", "Float32", "Float64"} | {
    f"{sign}Int{width}" for sign in ("", "U") for width in (8, 16, 32, 64)
}


def _as(column: Any, dtype: Any) -> Any:
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return column.to_pandas().astype(dtype)
    return column.to_pandas(types_mapper=lambda _: dtype)


def to_polars(table: Any, types: Mapping[str, Any]) -> Any:
    """The table as a `polars.DataFrame`."""
    import polars as pl

    frame: Any = pl.from_arrow(table)
    for name, dtype in types.items():
        if not isinstance(dtype, pl.Enum) or frame.columns.count(name) != 1:
            continue
        values = frame[name].cast(pl.String) if frame[name].dtype == pl.Categorical else None
        if values is not None and values.drop_nulls().is_in(list(dtype.categories)).all():
            frame = frame.with_columns(values.cast(dtype))
    return frame
