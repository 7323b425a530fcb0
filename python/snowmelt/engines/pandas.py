"""Functions for pandas columns and numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _dtypes
from .._arguments import not_a_column
from .._udf import AnyUdf
from ..errors import make
from . import Remote, remote


def call(function: AnyUdf | Remote | str, *columns: Any) -> Any:
    """The result of each row: a Series with the index of the first Series, or a numpy array if
    there is none. Columns are Series, numpy arrays and lists, all of equal length; the indexes of
    Series are equal as well. Raises `Error`.

    A missing value of a Series (`NaN`, `NaT`, `None`, `pd.NA`) is null, in a numpy array it is not.
    """
    import pyarrow as pa

    called = remote(function)
    arrays = [_array(called.name, place, column) for place, column in enumerate(columns, 1)]
    index = _index(called.name, columns)
    result = called(*arrays)
    if index is None:
        return result.to_numpy(zero_copy_only=False)
    frame = _dtypes.to_pandas(pa.table([result], names=[called.name]), {})
    return frame[called.name].set_axis(index)


def _array(name: str, place: int, column: Any) -> Any:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    columns = (pd.Series, pd.Index, pd.api.extensions.ExtensionArray, np.ndarray, Sequence)
    arrow = (pa.Array, pa.ChunkedArray)
    if not isinstance(column, (*columns, *arrow)) or isinstance(column, (str, bytes)):
        raise not_a_column(name, place, column, "Series, arrays and lists")
    if isinstance(column, arrow):
        return column
    try:
        is_series = isinstance(column, pd.Series)
        return pa.Array.from_pandas(column) if is_series else pa.array(column)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        text = f"argument {place} of `{name}` is no column of one type: {error}"
        raise make("SM-0103", text) from None


def _index(name: str, columns: tuple[Any, ...]) -> Any:
    """The index of all Series; None if there is none."""
    import pandas as pd

    indexes = [column.index for column in columns if isinstance(column, pd.Series)]
    for index in indexes[1:]:
        if len(index) == len(indexes[0]) and not index.equals(indexes[0]):
            raise make(
                "SM-0103",
                f"`{name}` is called with Series of different indexes",
                hint="align them with reindex, or give the rows as they are with to_numpy()",
            )
    return indexes[0] if indexes else None
