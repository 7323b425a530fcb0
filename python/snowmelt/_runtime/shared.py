"""Batches in memory that the engine and the instance of a function both map (CAGE 5.1).

The engine creates the memory and passes its descriptor on the connection, which goes on to carry
everything else: what wakes either side is a frame with the range of a batch. The first part of the
memory is written by the engine (arguments), the second by the instance (results).

Invariants: the memory is sealed against changes of its size, so that no access to it can fail.
Arguments are read in place, and are not overwritten as long as the function keeps a reference to
them: then the engine is told, and does not use the memory again.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any

from .frames import ProtocolError

RANGE = struct.Struct("<QQB")
# Flags of a range.
KEPT = 1

# Sizes of the two parts.
SIZES = struct.Struct("<QQ")

MAX_BYTES = 1 << 30


class Part:
    """A part of the memory to which batches of one schema are written, one at a time."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        # Where the first batch of a stream begins: behind its schema.
        self._start: int | None = None

    def write(self, batch: Any) -> tuple[int, int] | None:
        """The range of the batch, or None if it does not fit."""
        import pyarrow as pa

        start = self._start
        if start is None:
            start = self._start = _schema_bytes(batch)
        # Some more for the end of the stream.
        if start + pa.ipc.get_record_batch_size(batch) > len(self.view) - 64:
            return None
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(self.view))
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
            end = int(sink.tell())
        return start, end - start

    def read(self, offset: int, length: int) -> memoryview:
        """The bytes of a range that the other side names."""
        if length > len(self.view) or offset > len(self.view) - length:
            raise ProtocolError(f"{length} bytes at {offset} are outside of the shared memory")
        return self.view[offset : offset + length]


def _schema_bytes(batch: Any) -> int:
    """The bytes of the schema before the first batch of a stream."""
    import pyarrow as pa

    empty, sink = batch.slice(0, 0), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(empty)
        return int(sink.tell() - empty.serialize().size)


class Shared:
    """The mapped memory."""

    def __init__(self, descriptor: int, arguments: int, results: int) -> None:
        self.sizes = (arguments, results)
        if not 0 < arguments <= MAX_BYTES or not 0 < results <= MAX_BYTES:
            raise ProtocolError(f"shared memory cannot have {arguments} and {results} bytes")
        if os.fstat(descriptor).st_size != arguments + results:
            raise ProtocolError("the shared memory has another size")
        self._mapping = mmap.mmap(descriptor, arguments + results)
        whole = memoryview(self._mapping)
        self.arguments, self.results = Part(whole[:arguments]), Part(whole[arguments:])
