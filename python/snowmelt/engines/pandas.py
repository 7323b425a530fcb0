"""Functions for pandas columns and numpy arrays."""

from __future__ import annotations

from typing import Any

from .. import _dtypes
from .._udf import AnyUdf
from . import Remote, remote


def call(function: AnyUdf | Remote | str, *columns: Any) -> Any:
    """The result of each row: a Series with the index of the first Series, or a numpy array if
    there is none. Columns are Series, numpy arrays and lists, all of equal length.

    A missing value of a Series (`NaN`, `NaT`, `None`, `pd.NA`) is null, in a numpy array it is not.
    """
    import pandas as pd
    import pyarrow as pa

    called = remote(function)
    arrays = [
        pa.Array.from_pandas(column) if isinstance(column, pd.Series) else pa.array(column)
        for column in columns
    ]
    result = called(*arrays)
    index = next((column.index for column in columns if isinstance(column, pd.Series)), None)
    if index is None:
        return result.to_numpy(zero_copy_only=False)
    frame = _dtypes.to_pandas(pa.table([result], names=[called.name]), {})
    return frame[called.name].set_axis(index)
