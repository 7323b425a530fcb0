"""Transports for compatibility and comparison, beside that of Arrow messages (CAGE 5.2).

`remote(f, transport="flight")` and the like force one. Each passes batches over a descriptor of its
own, which the instance gets on the connection of its lease; that connection still says when the
instance ends. Invariant: a value is passed exactly or refused.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ._runtime import frames
from ._runtime.codecs import CODECS, Codec, Malformed, Unfit
from ._runtime.frames import Closed, Connection, ProtocolError
from ._runtime.transports import replace
from .errors import make

# How long the connection of a transport may take.
_CONNECTED_WITHIN_SECONDS = 60.0

# How often the time limit of a call is looked at where a library waits without one.
_WATCHED_SECONDS = 0.2


class Failure(Exception):
    """The function failed; `report` is its failure."""

    def __init__(self, payload: Any) -> None:
        super().__init__()
        try:
            self.report: dict[str, Any] = json.loads(bytes(payload))
        except ValueError as error:
            raise ProtocolError(f"a failure is no JSON: {error}") from None


class Transport(Protocol):
    """Passes the batches of one lease, one at a time."""

    def call(self, batch: Any, deadline: float) -> Any:
        """The record batch with the result.

        Raises `Failure`, `Unfit`, `ProtocolError`, and `OSError` where the connection ended or did
        not answer until the deadline (`TimeoutError`).
        """

    def close(self) -> None:
        """Ends it, also while a call waits."""


def check(name: str, function: str, schema: Any) -> None:
    """Raises `Error` if a transport does not have a type of the function."""
    for field in schema:
        if name in CODECS and not CODECS[name].check(field.type):
            what = "its result" if field.name == "return" else f"`{field.name}`"
            raise make(
                "SM-0110",
                f"transport={name!r} cannot pass {what} of `{function}`: {field.type}",
                hint='use transport="auto", which passes all types',
            )


def connect(name: str, lease: Connection, arguments: Any, result: Any) -> Transport:
    """A transport to the instance of a lease, on which nothing else is under way.

    Raises `Failure` if the instance lacks what it needs, and `OSError`.
    """
    lease.send_json(frames.TRANSPORT, {"transport": name})
    # The instance has read everything now, so a descriptor cannot come with another frame.
    _answer(lease, frames.TRANSPORT, "the instance did not take the transport")
    if name == "flight":
        return Flight(lease, arguments, result)
    if name == "parquet":
        return Files(lease, result)
    ours, theirs = _pair()
    with theirs:
        lease.send_with_descriptor(frames.TRANSPORT, b"", theirs.fileno())
    if name == "numpy":
        return Arrays(ours, result)
    return Http(ours, CODECS[name], "/invocations" if name == "mlflow" else "/", result)


def _pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection of TCP over the loopback of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_CONNECTED_WITHIN_SECONDS)
        ours = socket.create_connection(listener.getsockname())
        theirs, peer = listener.accept()
    theirs.settimeout(None)
    if peer != ours.getsockname():
        # Another program of this machine was faster.
        ours.close()
        theirs.close()
        raise ConnectionAbortedError("another program took the connection")
    for end in (ours, theirs):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read(codec: Codec, payload: Any, schema: Any) -> Any:
    try:
        return codec.read_result(payload, schema)
    except Malformed as error:
        raise ProtocolError(f"its answer cannot be read: {error}") from None


class Arrays:
    """Arrays of numpy in frames over TCP."""

    def __init__(self, connected: socket.socket, result: Any) -> None:
        self._socket, self._connection = connected, Connection(connected)
        self._result, self._codec = result, CODECS["numpy"]

    def call(self, batch: Any, deadline: float) -> Any:
        payload = self._codec.arguments(batch)
        self._socket.settimeout(_left(deadline))
        self._connection.send(frames.BATCH, payload)
        return _read(self._codec, _answer(self._connection), self._result)

    def close(self) -> None:
        self._socket.close()


class Files:
    """A file of Parquet that both sides have open; a frame of the lease says that it is written."""

    def __init__(self, lease: Connection, result: Any) -> None:
        self._lease, self._result, self._codec = lease, result, CODECS["parquet"]
        # On the disk, as a volume is. It has no name, so nothing has to be deleted.
        self._file = tempfile.TemporaryFile(buffering=0)
        lease.send_with_descriptor(frames.TRANSPORT, b"", self._file.fileno())

    def call(self, batch: Any, deadline: float) -> Any:
        replace(self._file, self._codec.arguments(batch))
        _left(deadline)
        # The socket of the lease has the time limit of the call.
        self._lease.send(frames.BATCH, b"")
        _answer(self._lease)
        self._file.seek(0)
        content = self._file.read(frames.MAX_PAYLOAD_BYTES + 1)
        if len(content) > frames.MAX_PAYLOAD_BYTES:
            raise ProtocolError("a file is longer than the limit")
        return _read(self._codec, content, self._result)

    def close(self) -> None:
        self._file.close()


def _answer(connection: Connection, kind: int = frames.BATCH, otherwise: str = "") -> Any:
    """The content of the next frame. `otherwise` is the error if it is of another kind."""
    frame = connection.receive()
    if frame is None:
        raise Closed("the instance closed the connection")
    if frame[0] == frames.FAILURE:
        raise Failure(frame[1])
    if frame[0] != kind:
        raise ProtocolError(otherwise or f"a frame of kind {frame[0]} is not an answer")
    return frame[1]


class Http:
    """Requests of HTTP/1.1 on one connection."""

    def __init__(self, connected: socket.socket, codec: Codec, path: str, result: Any) -> None:
        self._client = http.client.HTTPConnection("localhost")
        self._client.sock = connected
        # A connection that has ended is not made again: it would be to nobody.
        self._client.auto_open = 0
        self._codec, self._path, self._result = codec, path, result

    def call(self, batch: Any, deadline: float) -> Any:
        payload = self._codec.arguments(batch)
        if self._client.sock is None:
            raise Closed("the instance closed the connection")
        self._client.sock.settimeout(_left(deadline))
        try:
            self._client.request("POST", self._path, payload, {"Content-Type": self._codec.content})
            answer = self._client.getresponse()
            content = answer.read(frames.MAX_PAYLOAD_BYTES + 1)
        except http.client.HTTPException as error:
            raise Closed(f"the connection ended: {error!r}") from None
        if len(content) > frames.MAX_PAYLOAD_BYTES:
            raise ProtocolError("an answer is longer than the limit")
        if answer.status == 500:
            raise Failure(content)
        if answer.status != 200:
            raise ProtocolError(f"its answer has status {answer.status}")
        return _read(self._codec, content, self._result)

    def close(self) -> None:
        self._client.close()


class Flight:
    """Arrow Flight on one open exchange. The client connects to a socket of this process, whose
    accepted connection the instance gets."""

    def __init__(self, lease: Connection, arguments: Any, result: Any) -> None:
        self._result = result
        self._deadline: float | None = None
        self._closed = threading.Event()
        folder = tempfile.mkdtemp()
        try:
            path = os.path.join(folder, "flight")
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen(1)
                listener.settimeout(_CONNECTED_WITHIN_SECONDS)
                self._open(lease, listener, path, arguments)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        threading.Thread(target=self._watch, daemon=True).start()

    def _open(self, lease: Connection, listener: socket.socket, path: str, schema: Any) -> None:
        from pyarrow import flight

        def exchange() -> Any:
            descriptor = flight.FlightDescriptor.for_path("call")
            writer, reader = self._client.do_exchange(descriptor)
            writer.begin(schema)
            return writer, reader

        self._client = flight.connect(f"grpc+unix://{path}")
        with ThreadPoolExecutor(1) as thread:
            # It connects, and may wait for the server's first bytes.
            opened = thread.submit(exchange)
            # This process keeps no copy of it: it ends with the instance.
            with listener.accept()[0] as accepted:
                lease.send_with_descriptor(frames.TRANSPORT, b"", accepted.fileno())
            self._writer, self._reader = opened.result(_CONNECTED_WITHIN_SECONDS)

    def call(self, batch: Any, deadline: float) -> Any:
        import pyarrow as pa

        _left(deadline)
        self._deadline = deadline
        try:
            self._writer.write_batch(batch)
            chunk = self._reader.read_chunk()
        except (pa.ArrowException, OSError, StopIteration) as error:
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            raise Closed(f"the exchange ended: {error}") from None
        finally:
            self._deadline = None
        if chunk.data is None:
            raise Failure(chunk.app_metadata)
        if chunk.data.schema.types != self._result.types:
            raise ProtocolError(f"its answer has {chunk.data.schema.types}")
        chunk.data.validate(full=True)
        return chunk.data

    def _watch(self) -> None:
        """Ends a call that is over its time."""
        while not self._closed.wait(_WATCHED_SECONDS):
            deadline = self._deadline
            if deadline is not None and time.monotonic() >= deadline:
                self._reader.cancel()

    def close(self) -> None:
        self._closed.set()
        # It may have ended with the instance.
        with contextlib.suppress(Exception):
            self._reader.cancel()
            self._client.close()


__all__ = ["Failure", "Transport", "Unfit", "check", "connect"]
