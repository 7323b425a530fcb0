"""Batches in the formats of other systems, for `transport="json"` and the like (CAGE 5.2).

Invariant: a format passes a value exactly or refuses it; what it cannot hold is never rounded,
converted or left out.
"""

from __future__ import annotations

import io
import json
from typing import Any

from .._arguments import as_array


class Unfit(Exception):
    """The format does not have a type or a value; the text says which."""


class Malformed(Exception):
    """The other side sent something that is not of the format."""


class Codec:
    """A format for the arguments and for the result of a call, both record batches."""

    content = "application/octet-stream"

    def check(self, kind: Any) -> bool:
        """Whether values of a type can be passed."""
        raise NotImplementedError

    def arguments(self, batch: Any) -> bytes:
        """Raises `Unfit`."""
        raise NotImplementedError

    def read_arguments(self, payload: Any, schema: Any) -> Any:
        """Raises `Malformed`."""
        raise NotImplementedError

    def result(self, batch: Any) -> bytes:
        """Raises `Unfit`."""
        return self.arguments(batch)

    def read_result(self, payload: Any, schema: Any) -> Any:
        """Raises `Malformed`."""
        return self.read_arguments(payload, schema)


class Json(Codec):
    """Values as JSON has them."""

    content = "application/json"

    def check(self, kind: Any) -> bool:
        return _python_types(kind) is not None


class Rows(Json):
    """JSON as external functions of warehouses have it: `{"data": [[row, value, ...], ...]}`."""

    def arguments(self, batch: Any) -> bytes:
        return _json({"data": [[n, *row] for n, row in enumerate(_rows(batch))]})

    def read_arguments(self, payload: Any, schema: Any) -> Any:
        rows = _list(_parsed(payload, "data"), "data")
        if [row[0] if isinstance(row, list) and row else None for row in rows] != list(
            range(len(rows))
        ):
            raise Malformed("its rows are not numbered from 0")
        return _batch([row[1:] for row in rows], schema)


class Mlflow(Json):
    """JSON of MLflow's scoring protocol: `dataframe_split` to `predictions`."""

    def arguments(self, batch: Any) -> bytes:
        rows = [list(row) for row in _rows(batch)]
        return _json({"dataframe_split": {"columns": batch.schema.names, "data": rows}})

    def read_arguments(self, payload: Any, schema: Any) -> Any:
        split = _parsed(payload, "dataframe_split")
        if not isinstance(split, dict) or split.get("columns") != schema.names:
            raise Malformed("its columns are not those of the function")
        return _batch(_list(split.get("data"), "data"), schema)

    def result(self, batch: Any) -> bytes:
        return _json({"predictions": batch.column(0).to_pylist()})

    def read_result(self, payload: Any, schema: Any) -> Any:
        values = _list(_parsed(payload, "predictions"), "predictions")
        return _batch([[value] for value in values], schema)


class Numpy(Codec):
    """Columns as numpy's own files (`.npy`), one after the other: numbers without nulls."""

    def check(self, kind: Any) -> bool:
        from pyarrow import types

        return bool(types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind))

    def arguments(self, batch: Any) -> bytes:
        import numpy as np

        sink = io.BytesIO()
        for name, column in zip(batch.schema.names, batch.columns):
            if column.null_count:
                raise Unfit(f"`{name}` has a null, and arrays of numpy have none")
            np.save(sink, column.to_numpy(zero_copy_only=False), allow_pickle=False)
        return sink.getvalue()

    def read_arguments(self, payload: Any, schema: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        source = io.BytesIO(payload)
        columns = []
        for field in schema:
            try:
                np.lib.format.read_magic(source)
                shape, _, dtype = np.lib.format.read_array_header_1_0(source)
                if len(shape) != 1 or dtype != field.type.to_pandas_dtype():
                    text = f"{len(shape)} dimensions of {dtype}"
                    raise Malformed(f"`{field.name}` has {text} instead of {field.type}")
                # `np.load` would reserve what the header claims, whatever follows it.
                values = np.frombuffer(_next(source, shape[0] * dtype.itemsize), dtype)
            except (ValueError, EOFError) as error:
                raise Malformed(f"an array cannot be read: {error}") from None
            columns.append(pa.array(values, field.type))
        return _from_arrays(columns, schema)


def _next(source: io.BytesIO, count: int) -> bytes:
    content = source.read(count) if count >= 0 else b""
    if len(content) != count:
        raise Malformed(f"an array of {count} bytes has {len(content)}")
    return content


class Parquet(Codec):
    """A file of Parquet."""

    def check(self, kind: Any) -> bool:
        return True

    def arguments(self, batch: Any) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        try:
            pq.write_table(pa.Table.from_batches([batch]), sink, compression="none")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Unfit(str(error)) from None
        return sink.getvalue()  # type: ignore[no-any-return]

    def read_arguments(self, payload: Any, schema: Any) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(pa.py_buffer(payload))
            # A few bytes could expand to any number.
            if not _codecs(file.metadata) <= {"UNCOMPRESSED"}:
                raise Malformed("a file of Parquet is compressed")
            table = file.read()
        except (pa.ArrowException, OSError) as error:
            raise Malformed(f"a file of Parquet cannot be read: {error}") from None
        if table.schema.types != schema.types:
            raise Malformed(f"{table.schema.types} instead of {schema.types}")
        return _from_arrays([as_array(column) for column in table.columns], schema)


def _codecs(metadata: Any) -> set[str]:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return {
        group.column(place).compression for group in groups for place in range(group.num_columns)
    }


CODECS: dict[str, Codec] = {
    "json": Rows(),
    "mlflow": Mlflow(),
    "numpy": Numpy(),
    "parquet": Parquet(),
}


def _python_types(kind: Any) -> frozenset[type] | None:
    """The Python types of values that JSON holds as they are."""
    from pyarrow import types

    if types.is_boolean(kind):
        return frozenset({bool, type(None)})
    if types.is_integer(kind):
        return frozenset({int, type(None)})
    if types.is_float32(kind) or types.is_float64(kind):
        return frozenset({float, type(None)})
    if types.is_string(kind) or types.is_large_string(kind):
        return frozenset({str, type(None)})
    return None


def _rows(batch: Any) -> Any:
    return zip(*(column.to_pylist() for column in batch.columns))


def _json(message: Any) -> bytes:
    try:
        # Numbers that JSON does not have would be words that only Python reads.
        return json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise Unfit("JSON has no infinite number and no NaN") from None


def _parsed(payload: Any, name: str) -> Any:
    try:
        message = json.loads(bytes(payload))
    except ValueError as error:
        raise Malformed(f"it is no JSON: {error}") from None
    if not isinstance(message, dict) or name not in message:
        raise Malformed(f"it has no `{name}`")
    return message[name]


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise Malformed(f"`{name}` is not a list")
    return value


def _batch(rows: list[Any], schema: Any) -> Any:
    import pyarrow as pa

    if any(not isinstance(row, list) or len(row) != len(schema) for row in rows):
        raise Malformed(f"a row does not have {len(schema)} values")
    columns = list(zip(*rows)) if rows else [()] * len(schema)
    arrays = []
    for values, field in zip(columns, schema):
        # pyarrow would make 1 of 1.5.
        wrong = set(map(type, values)) - (_python_types(field.type) or frozenset())
        if wrong:
            raise Malformed(f"`{field.name}` has a {wrong.pop().__name__}, and is {field.type}")
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, OverflowError) as error:
            raise Malformed(f"`{field.name}`: {error}") from None
    return _from_arrays(arrays, schema)


def _from_arrays(columns: list[Any], schema: Any) -> Any:
    import pyarrow as pa

    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise Malformed("its columns have different lengths")
    return pa.RecordBatch.from_arrays(columns, schema=schema)
