"""Calls a function once for a batch: with pyarrow arrays, pandas series or numpy arrays.

Invariant: the function sees only rows in which every argument that does not accept None has a
value; the others are null in the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from .._elements import Element
from .._signature import Signature
from . import exact, failure, nested, process
from .failure import Failed
from .nulls import Rows
from .values import as_declared


class Vectorised:
    """A batch function, ready to be called with batches."""

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        self._function, self._signature = function, signature
        self._give, self._take = _FORMS[signature.batch]
        # To make them again for each batch costs as much as a short call.
        self._declared = [element.arrow_type() for _, element in signature.arguments]
        self._returned = signature.returns.arrow_type()

    def __call__(self, batch: Any) -> Any:
        """The result column of a `pyarrow.RecordBatch`. Raises `Failed`."""
        rows = Rows(batch, self._signature)
        if rows.count == 0:
            return pa.nulls(batch.num_rows, self._returned)
        columns = list(map(as_declared, rows.columns, self._declared))
        return rows.spread(self._checked(self._call(columns), rows.count))

    def _call(self, columns: list[Any]) -> Any:
        elements = [element for _, element in self._signature.arguments]
        given = [self._give(column, element) for column, element in zip(columns, elements)]
        try:
            with process.user_code:
                return self._function(*given)
        except BaseException as error:
            raise failure.from_exception(
                error, "raised", self._signature.name, input=self._shown(columns), failed=1, calls=1
            ) from None

    def _shown(self, columns: list[Any]) -> str:
        names = [name for name, _ in self._signature.arguments]
        heads = [failure.shown(n, c.slice(0, 5).to_pylist()) for n, c in zip(names, columns)]
        return f"{', '.join(heads)} (the first of {len(columns[0])} rows)"

    def _checked(self, result: Any, count: int) -> Any:
        name, returns = self._signature.name, self._signature.returns
        array = self._as_array(result)
        if len(array) != count:
            reason = f"expected {count} values, one for each row, got {len(array)}"
            raise Failed("length", reason, function=name)
        if array.type.equals(self._returned):
            return array
        if not exact.may_become(array.type, self._returned):
            raise Failed("type", f"expected {returns}, got an array of {array.type}", function=name)
        try:
            return exact.cast(array, self._returned)
        except pa.ArrowException as error:
            reason = f"values of {array.type} do not fit {returns}: {error}"
            raise Failed("type", reason, function=name) from None

    def _as_array(self, result: Any) -> Any:
        array = self._take(result, self._signature.returns)
        if array is None:
            form, got = self._signature.batch, type(result)
            reason = f"expected {_EXPECTED[form]}, got {got.__module__}.{got.__qualname__}"
            raise Failed("type", reason, function=self._signature.name)
        return array


def _give_arrow(column: Any, _: Element) -> Any:
    return column


def _take_arrow(result: Any, _: Element) -> Any:
    if isinstance(result, pa.ChunkedArray):
        return result.combine_chunks()
    return result if isinstance(result, pa.Array) else None


def _give_pandas(column: Any, element: Element) -> Any:
    import pandas as pd

    if element.nullable and element.kind in ("int", "bool"):
        # Plain pandas has no null in these: numbers would become floats if there is one.
        mapping = {
            pa.int8(): pd.Int8Dtype(),
            pa.int16(): pd.Int16Dtype(),
            pa.int32(): pd.Int32Dtype(),
        }
        mapping |= {pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype()}
        mapping |= {pa.uint32(): pd.UInt32Dtype(), pa.uint64(): pd.UInt64Dtype()}
        mapping |= {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        return column.to_pandas(types_mapper=mapping.get)
    # Integers next to a null inside lists and structs would become floats as well.
    return column.to_pandas(integer_object_nulls=True)


def _take_pandas(result: Any, returns: Element) -> Any:
    import pandas as pd

    if not isinstance(result, (pd.Series, pd.Index)):
        return _take_numpy(result, returns)
    return _inferred(result.array if isinstance(result, pd.Index) else result, returns)


def _give_numpy(column: Any, element: Element) -> Any:
    values = nested.as_numpy(column)
    if not element.nullable or element.kind == "float":
        return values if values.flags.writeable else values.copy()
    import numpy as np

    filled = column
    if column.null_count and element.kind in ("int", "bool"):
        filled = column.fill_null(0 if element.kind == "int" else False)
        values = filled.to_numpy(zero_copy_only=False)
    return np.ma.MaskedArray(values, mask=column.is_null().to_numpy(zero_copy_only=False))


def _take_numpy(result: Any, returns: Element) -> Any:
    import numpy as np

    if isinstance(result, np.ma.MaskedArray):
        if result.ndim != 1:
            return None
        mask = np.ma.getmaskarray(result)
        return _inferred(np.ma.getdata(result), returns, mask=mask)
    if not isinstance(result, np.ndarray) or result.ndim != 1:
        return None
    return _inferred(result, returns)


def _inferred(values: Any, returns: Element, **mask: Any) -> Any:
    """An Arrow array of the values' own type; objects are read as the declared type."""
    import numpy as np

    declared = returns.arrow_type()
    dtype = getattr(values, "dtype", None)
    is_series = type(values).__module__.startswith("pandas")
    try:
        if dtype == np.dtype(object):
            return _from_objects(values, returns, **mask)
        array = pa.array(values, from_pandas=True if is_series else None, **mask)
        if pa.types.is_timestamp(declared) and isinstance(values, np.ndarray):
            # numpy has no zones: its times are in UTC, as those that it was given.
            return array.cast(pa.timestamp(array.type.unit, declared.tz))
        return array
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise Failed("type", f"values of {dtype} do not fit {declared}: {error}") from None


def _from_objects(values: Any, returns: Element, mask: Any = None) -> Any:
    from .values import WrongRow, write_column

    items = [None if _is_missing(item) else item for item in values]
    if mask is not None:
        items = [None if hidden else item for item, hidden in zip(items, mask)]
    missing = {row for row, item in enumerate(items) if item is None}
    try:
        return write_column(items, returns, missing.__contains__)
    except WrongRow as wrong:
        raise Failed("type", f"value {wrong.row}: {wrong.reason}") from None


def _is_missing(item: Any) -> bool:
    if isinstance(item, float):
        return item != item
    return item is None or type(item).__name__ in ("NAType", "NaTType")


_FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "arrow": (_give_arrow, _take_arrow),
    "pandas": (_give_pandas, _take_pandas),
    "numpy": (_give_numpy, _take_numpy),
}


def give(form: str, column: Any, element: Element) -> Any:
    """A column as the function gets it."""
    return _FORMS[form][0](column, element)


_EXPECTED = {
    "arrow": "a pyarrow.Array",
    "pandas": "a pandas.Series",
    "numpy": "a numpy.ndarray of one dimension",
}
