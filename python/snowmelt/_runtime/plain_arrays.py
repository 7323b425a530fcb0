"""Writes arrays and frames of numpy, pandas, pyarrow and polars as plain data.

`snowmelt/_plain_arrays.py` reads them. Invariant: numbers are sent as bytes of their own type, and
a library is used only if the value is of it: a function with pandas needs no pyarrow.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

from . import plain
from .plain import NotPlain, not_plain


def encode(value: Any, level: int) -> Any:
    """The value as JSON values. Raises `NotPlain`."""
    library = type(value).__module__.partition(".")[0]
    return _LIBRARIES[library](value, level)


def _text(data: Any) -> str:
    return base64.b64encode(data).decode()


def _numpy(value: Any, level: int) -> Any:
    import numpy as np

    if isinstance(value, np.generic):
        return ["numpy", _npy(np.asarray(value))]
    if type(value) is np.ma.MaskedArray:
        mask = np.ma.getmaskarray(value)
        return ["masked", _numpy(np.ma.getdata(value), level), _npy(mask)]
    if type(value) is not np.ndarray:
        raise not_plain(value)
    if value.dtype.hasobject:
        if value.dtype.fields is not None:
            raise NotPlain(f"an array of {value.dtype} is not plain data")
        return ["objects", list(value.shape), plain.items(value.ravel().tolist(), level)]
    return ["ndarray", _npy(value)]


def _npy(array: Any) -> str:
    import numpy as np

    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return _text(buffer.getbuffer())


def _pandas(value: Any, level: int) -> Any:
    import pandas as pd

    if value is pd.NA:
        return ["na"]
    if value is pd.NaT:
        return ["nat"]
    if type(value) in (pd.Timestamp, pd.Timedelta):
        zone = getattr(value, "tzinfo", None)
        kind = "timestamp" if type(value) is pd.Timestamp else "pandas timedelta"
        return [kind, _numpy(value.to_numpy(), level), None if zone is None else str(zone)]
    if type(value) is pd.Series:
        return ["series", _column(value, level), _index(value.index, level), _name(value, level)]
    if type(value) is pd.DataFrame:
        columns = [_column(value.iloc[:, place], level) for place in range(value.shape[1])]
        return ["frame", columns, _index(value.columns, level), _index(value.index, level)]
    if isinstance(value, pd.Index):
        return ["index", _index(value, level)]
    if isinstance(value, pd.api.extensions.ExtensionArray):
        return ["array", _column(pd.Series(value), level)]
    raise not_plain(value)


def _name(named: Any, level: int) -> Any:
    return plain.encode(named.name, level)


def _index(index: Any, level: int) -> Any:
    import pandas as pd

    if type(index) is pd.RangeIndex:
        return ["range", index.start, index.stop, index.step, _name(index, level)]
    if type(index) is pd.MultiIndex:
        places = range(index.nlevels)
        values = [_column(index.get_level_values(place).to_series(), level) for place in places]
        return ["multi", values, plain.items(index.names, level)]
    return ["plain", _column(index.to_series(), level), _name(index, level)]


def _column(series: Any, level: int) -> Any:
    import numpy as np
    import pandas as pd

    dtype = series.dtype
    if dtype == np.dtype(object):
        return ["objects", plain.items(series.tolist(), level)]
    if isinstance(dtype, np.dtype):
        return ["numpy", _npy(series.to_numpy())]
    if isinstance(dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy()
        return ["categorical", _npy(codes), _index(dtype.categories, level), bool(dtype.ordered)]
    if isinstance(dtype, pd.DatetimeTZDtype):
        utc = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return ["zoned", _npy(utc.to_numpy()), str(dtype.tz)]
    if isinstance(dtype, pd.StringDtype):
        missing = series.isna()
        texts = [None if gone else text for text, gone in zip(series.tolist(), missing)]
        return ["strings", str(dtype), texts]
    if str(dtype) in NULLABLE:
        kind = dtype.numpy_dtype
        filled = series.array.to_numpy(dtype=kind, na_value=kind.type(0))
        return ["nullable", str(dtype), _npy(filled), _npy(series.isna().to_numpy())]
    raise NotPlain(f"a column of {dtype} is not plain data")


# pandas' own numeric types with a mask for nulls.
NULLABLE = frozenset(
    {"boolean", "Float32", "Float64"}
    | {f"{sign}Int{width}" for sign in ("", "U") for width in (8, 16, 32, 64)}
)


def _pyarrow(value: Any, _: int) -> Any:
    import pyarrow as pa

    if isinstance(value, pa.Table):
        return ["arrow", "table", _ipc(value)]
    if isinstance(value, pa.RecordBatch):
        return ["arrow", "batch", _ipc(pa.Table.from_batches([value]))]
    if isinstance(value, pa.ChunkedArray):
        return ["arrow", "chunked", _ipc(pa.table({"values": value}))]
    if isinstance(value, pa.Array):
        return ["arrow", "array", _ipc(pa.table({"values": value}))]
    raise not_plain(value)


def _ipc(table: Any) -> str:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return _text(sink.getvalue())


def _polars(value: Any, _: int) -> Any:
    import polars as pl

    frame = value.to_frame() if isinstance(value, pl.Series) else value
    if not isinstance(frame, pl.DataFrame):
        raise not_plain(value)
    buffer = io.BytesIO()
    try:
        frame.write_ipc_stream(buffer)
    except Exception as error:
        raise NotPlain(f"the polars frame has no Arrow form: {error}") from None
    return ["polars", "frame" if frame is value else "series", _text(buffer.getbuffer())]


_LIBRARIES: dict[str, Callable[[Any, int], Any]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "pyarrow": _pyarrow,
    "polars": _polars,
}
