"""Reads Arrow messages that a sandbox wrote.

Boundary: the bytes are not trusted. Invariant: what is read needs no more memory than was received.
A compressed body could expand to any size, and pyarrow expands it before anything of it can be
checked: so its header is looked at first. Nothing of the platform compresses messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

# Fields of the tables in Arrow's `Message.fbs`, and values of its enumerations.
_VERSION, _HEADER_TYPE, _HEADER = 0, 1, 2
_DATA_OF_DICTIONARY, _COMPRESSION = 1, 3
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_V5 = 4

_KINDS = {"dictionary": _DICTIONARY_BATCH, "record batch": _RECORD_BATCH}


class Refused(ValueError):
    """A message that could expand, or whose header is damaged."""


def read_batch(payload: Any, schema: Any) -> Any:
    """The record batch of a message. Its offsets are checked.

    Raises `Refused` and `pyarrow.ArrowException`, `OSError`, `ValueError` or `EOFError`.
    """
    import pyarrow as pa

    message = pa.ipc.read_message(pa.py_buffer(payload))
    _check(message)
    batch = pa.ipc.read_record_batch(message, schema)
    # Before this check, offsets and lengths may be outside the buffers.
    batch.validate(full=True)
    return batch


def read_table(content: Any) -> Any:
    """The table of a stream, checked as by `read_batch`."""
    import pyarrow as pa

    check(content)
    table = pa.ipc.open_stream(pa.py_buffer(content)).read_all()
    table.validate(full=True)
    return table


def check(content: Any) -> None:
    """Refuses messages, one after the other, of which one could expand. Raises as `read_batch`."""
    for _ in _checked(content):
        pass


def rewritten(content: Any) -> Any:
    """A stream of the same messages, for another library than pyarrow: it finds those that were
    checked, wherever it would have looked for them. Raises as `read_batch`."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    for message in _checked(content):
        message.serialize_to(sink)
    # The end of a stream.
    sink.write(b"\xff" * 4 + bytes(4))
    return sink.getvalue()


def _checked(content: Any) -> Iterator[Any]:
    import pyarrow as pa

    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(content)):
        if message.type != "schema":
            _check(message)
        yield message


def _check(message: Any) -> None:
    wanted = _KINDS.get(message.type)
    if wanted is None:
        raise Refused(f"a message of type {message.type} is no batch")
    try:
        is_refused = _may_expand(memoryview(message.metadata), wanted)
    except struct.error:
        raise Refused("the header of a message is damaged") from None
    if is_refused:
        raise Refused("its buffers may be compressed, as the platform never writes them")


def _may_expand(header: memoryview, kind: int) -> bool:
    message = _pointed(header, 0)
    version = _field(header, message, _VERSION)
    # Earlier versions name a compression elsewhere.
    if version is None or _read(header, "<h", version) != _V5:
        return True
    found, place = _field(header, message, _HEADER_TYPE), _field(header, message, _HEADER)
    if found is None or place is None or header[found] != kind:
        return True
    batch = _pointed(header, place)
    if kind == _DICTIONARY_BATCH:
        place = _field(header, batch, _DATA_OF_DICTIONARY)
        if place is None:
            return True
        batch = _pointed(header, place)
    return _field(header, batch, _COMPRESSION) is not None


def _pointed(header: memoryview, place: int) -> int:
    """Where the table is to which a place points."""
    return place + int(_read(header, "<I", place))


def _field(header: memoryview, table: int, number: int) -> int | None:
    """Where a field of a table is; None if the table lacks it."""
    fields = table - int(_read(header, "<i", table))
    if _read(header, "<H", fields) < 4 + 2 * (number + 1):
        return None
    offset = int(_read(header, "<H", fields + 4 + 2 * number))
    return table + offset if offset else None


def _read(header: memoryview, form: str, place: int) -> int:
    if place < 0:
        # Python would count from the end.
        raise struct.error
    return int(struct.unpack_from(form, header, place)[0])
