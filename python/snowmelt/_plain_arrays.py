"""Decodes arrays and frames that a sandbox sent as plain data (`_runtime/plain_arrays.py`).

Boundary: as in `_plain.py`, the input is not trusted. Invariant: pickles are never read, no more
memory is allocated than was received, and Arrow data is validated before it is used.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from . import _ipc
from ._plain import data, decode, items
from ._runtime.plain_arrays import NULLABLE


def _npy(text: str) -> Any:
    import numpy as np

    content = data(text)
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    headers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, is_fortran, dtype = headers[version](stream)
    if dtype.hasobject:
        raise ValueError("an array of objects was sent as bytes")
    if 0 in shape:
        return np.empty(shape, dtype)
    # The size is that of the received bytes, not that of the header.
    array = np.frombuffer(content, dtype, offset=stream.tell())
    # A copy, because memory of `bytes` is read-only.
    return array.reshape(shape, order="F" if is_fortran else "C").copy(order="K")


def _objects(shape: list[int], sent: list[Any]) -> Any:
    import numpy as np

    array = np.empty(len(sent), dtype=object)
    for number, value in enumerate(items(sent)):
        array[number] = value
    return array.reshape(shape)


def _masked(values: Any, mask: str) -> Any:
    import numpy as np

    return np.ma.MaskedArray(decode(values), mask=_npy(mask))


def _moment(kind: str) -> Callable[..., Any]:
    def read(value: list[str], zone: str | None) -> Any:
        import pandas as pd

        moment = getattr(pd, kind)(decode(value)[()])
        return moment if zone is None else moment.tz_localize("UTC").tz_convert(zone)

    return read


def _missing(name: str) -> Callable[[], Any]:
    def read() -> Any:
        import pandas as pd

        return getattr(pd, name)

    return read


def _series(sent: list[Any], index: list[Any], name: Any) -> Any:
    import pandas as pd

    return pd.Series(_column(sent), index=_index(index), name=decode(name))


def _frame(sent: list[Any], names: list[Any], index: list[Any]) -> Any:
    import pandas as pd

    columns = {number: _column(column) for number, column in enumerate(sent)}
    frame = pd.DataFrame(columns, index=_index(index))
    frame.columns = _index(names)
    return frame


def _index(sent: list[Any]) -> Any:
    import pandas as pd

    kind, *parts = sent
    if kind == "range":
        start, stop, step, name = parts
        return pd.RangeIndex(start, stop, step, name=decode(name))
    if kind == "multi":
        levels, names = parts
        return pd.MultiIndex.from_arrays([_column(one) for one in levels], names=items(names))
    column, name = parts
    return pd.Index(_column(column), name=decode(name))


def _column(sent: list[Any]) -> Any:
    kind, *parts = sent
    return _COLUMNS[kind](*parts)


def _zoned(text: str, zone: str) -> Any:
    import pandas as pd

    return pd.DatetimeIndex(_npy(text)).tz_localize("UTC").tz_convert(zone).array


def _categorical(codes: str, categories: list[Any], ordered: bool) -> Any:
    import pandas as pd

    return pd.Categorical.from_codes(_npy(codes), categories=_index(categories), ordered=ordered)


def _strings(name: str, texts: list[Any]) -> Any:
    import pandas as pd

    if name == "string":
        return pd.array(texts, dtype="string")
    # The string type of pandas 3; older versions use objects.
    kind: Any = "str" if int(pd.__version__.partition(".")[0]) >= 3 else object
    return pd.Series(texts, dtype=kind).array


def _nullable(name: str, values: str, mask: str) -> Any:
    import pandas as pd

    if name not in NULLABLE:
        raise ValueError(f"{name} is not a nullable type")
    array = pd.array(_npy(values), dtype=name)
    array[_npy(mask)] = pd.NA
    return array


def _object_column(sent: list[Any]) -> Any:
    return _objects([len(sent)], sent)


_COLUMNS: dict[str, Callable[..., Any]] = {
    "objects": _object_column,
    "numpy": _npy,
    "categorical": _categorical,
    "zoned": _zoned,
    "strings": _strings,
    "nullable": _nullable,
}


def _arrow(kind: str, text: str) -> Any:
    import pyarrow as pa

    table = _ipc.read_table(data(text))
    if kind == "table":
        return table
    if kind == "batch":
        [batch] = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        return batch
    values = table.column(0)
    return values if kind == "chunked" else values.combine_chunks()


def _polars(kind: str, text: str) -> Any:
    import polars as pl

    frame = pl.read_ipc_stream(io.BytesIO(_ipc.rewritten(data(text))))
    return frame if kind == "frame" else frame.to_series()


READERS: dict[str, Callable[..., Any]] = {
    "ndarray": _npy,
    "numpy": lambda text: _npy(text)[()],
    "objects": _objects,
    "masked": _masked,
    "timestamp": _moment("Timestamp"),
    "pandas timedelta": _moment("Timedelta"),
    "na": _missing("NA"),
    "nat": _missing("NaT"),
    "series": _series,
    "frame": _frame,
    "index": _index,
    "array": _column,
    "arrow": _arrow,
    "polars": _polars,
}
