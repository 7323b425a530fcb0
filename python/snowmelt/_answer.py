"""The frames of a query's answer, as record batches and events.

Invariant: an answer is complete only with its `End` frame; one that ends before is an error, never
a shorter table.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from . import _ipc
from ._runtime import frames
from .errors import from_report, make


class _Payloads(io.RawIOBase):
    """Consecutive Arrow messages as a stream for `pyarrow.ipc`."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = memoryview(b"")

    def feed(self, payload: bytearray) -> None:
        self._rest = memoryview(payload)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self._take(size))

    def read_buffer(self, size: int = -1) -> Any:
        """The bytes without a copy; pyarrow calls this instead of `read`."""
        import pyarrow as pa

        return pa.py_buffer(self._take(size))

    def _take(self, size: int) -> memoryview:
        count = len(self._rest) if size is None or size < 0 else size
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


class Answer:
    """Reads one answer; `schema`, `profile` and `query_id` are set when they arrive."""

    def __init__(self, on_event: Callable[[dict[str, Any]], None]) -> None:
        self._on_event = on_event
        self.schema: Any = None
        self.profile: dict[str, Any] | None = None
        self.query_id: str | None = None

    def batches(self, source: frames.Source) -> Iterator[Any]:
        """The record batches of a response in order.

        Raises `Error` for a failed query and for an invalid answer.
        """
        import pyarrow as pa

        payloads, reader = _Payloads(), None
        for kind, payload in self._frames(source):
            payloads.feed(payload)
            try:
                if kind in (frames.SCHEMA, frames.BATCH):
                    # The driver that wrote it is in a sandbox, and the server passes it on.
                    _ipc.check(payload)
                if kind == frames.SCHEMA:
                    reader = pa.ipc.open_stream(payloads)
                    self.schema = reader.schema
                    continue
                batch = reader.read_next_batch() if kind == frames.BATCH and reader else None
            except (pa.ArrowException, _ipc.Refused, StopIteration) as error:
                raise self._broken(f"it has invalid Arrow data: {error}") from None
            if batch is not None:
                yield batch
            else:
                self._other(kind, payload)

    def _frames(self, source: frames.Source) -> Iterator[tuple[int, bytearray]]:
        while True:
            try:
                frame = frames.read(source)
            except frames.ProtocolError as error:
                raise self._broken(str(error)) from None
            if frame is None:
                raise self._broken("the stream ended before the End frame")
            if frame[0] == frames.END:
                return
            yield frame

    def _other(self, kind: int, payload: bytearray) -> None:
        if kind == frames.EVENT:
            event = json.loads(payload)
            if event.get("event") == "accepted":
                self.query_id = event["query"]
            self._on_event(event)
        elif kind == frames.PROFILE:
            self.profile = json.loads(payload)
        elif kind == frames.FAILURE:
            report = json.loads(payload)
            report.setdefault("query_id", self.query_id)
            raise from_report(report)
        else:
            raise self._broken(f"it has an unexpected frame of kind {kind}")

    def _broken(self, reason: str) -> Exception:
        return make("SM-0507", f"the answer is incomplete: {reason}", query_id=self.query_id)
