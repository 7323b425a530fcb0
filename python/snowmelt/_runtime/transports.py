"""The instance's side of the transports for compatibility and comparison (CAGE 5.2).

The engine passes a descriptor on the connection of the lease: a connected socket, or a file. A
sandbox has no network and shares no folder with its engine, and needs neither. The transport ends
with the other end of the socket; then the connection of the lease has the next frame.
"""

from __future__ import annotations

import dataclasses
import http.server
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from . import frames
from .codecs import CODECS, Codec, Malformed, Unfit
from .failure import Failed
from .frames import Connection, ProtocolError

_RELAYED_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Function:
    """What is served: `answer` gives the record batch with the result of one, or why there is
    none."""

    name: str
    arguments: Any
    result: Any
    answer: Callable[[Any], Any]

    def answered(self, codec: Codec, payload: Any) -> tuple[bool, bytes]:
        """Whether a call succeeded, and the result or the failure."""
        try:
            answer = self.answer(codec.read_arguments(payload, self.arguments))
        except Malformed as error:
            raise ProtocolError(f"a batch cannot be read: {error}") from None
        if not isinstance(answer, Failed):
            try:
                return True, codec.result(answer)
            except Unfit as unfit:
                answer = Failed("type", f"its result cannot be sent: {unfit}", function=self.name)
        return False, json.dumps(answer.message).encode()


def serve(name: str, connection: Connection, descriptor: int, function: Function) -> None:
    """Answers until the transport ends. Closes the descriptor."""
    if name == "parquet":
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            _files(connection, file, function)
        return
    with socket.socket(fileno=descriptor) as connected:
        if name == "flight":
            _flight(connected, function)
        elif name == "numpy":
            _numpy(Connection(connected), function)
        else:
            _http(connected, CODECS[name], function)


def load(name: str) -> None:
    """Imports what a transport needs. Raises `ImportError`, and `KeyError` for an unknown name."""
    if name == "flight":
        import pyarrow.flight  # noqa: F401
    elif name == "parquet":
        import pyarrow.parquet  # noqa: F401
    elif name == "numpy":
        import numpy  # noqa: F401
    else:
        CODECS[name]


def _numpy(connection: Connection, function: Function) -> None:
    while (frame := connection.receive()) is not None:
        is_result, payload = function.answered(CODECS["numpy"], frame[1])
        connection.send(frames.BATCH if is_result else frames.FAILURE, payload)


def _files(connection: Connection, file: Any, function: Function) -> None:
    """A batch is the content of the file, and so is its answer. A frame says that it is there."""
    while (frame := connection.receive()) is not None:
        if frame[0] != frames.BATCH:
            raise ProtocolError(f"a frame of kind {frame[0]} is not a batch in the file")
        file.seek(0)
        is_result, payload = function.answered(CODECS["parquet"], file.read())
        if is_result:
            replace(file, payload)
            payload = b""
        connection.send(frames.BATCH if is_result else frames.FAILURE, payload)


def replace(file: Any, content: Any) -> None:
    """The whole content of a file that both sides have open."""
    file.seek(0)
    file.truncate()
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _http(connected: socket.socket, codec: Codec, function: Function) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        # One message for the answer.
        wbufsize = -1

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            if not 0 <= length <= frames.MAX_PAYLOAD_BYTES:
                raise ProtocolError(f"a request of {length} bytes is longer than the limit")
            is_result, payload = function.answered(codec, self.rfile.read(length))
            self.send_response(200 if is_result else 500)
            self.send_header("Content-Type", codec.content if is_result else "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: object) -> None:
            pass

    # It answers all requests of the connection.
    Handler(connected, ("engine", 0), None)  # type: ignore[arg-type]


def _flight(connected: socket.socket, function: Function) -> None:
    """A server of Flight takes a path and not a connected socket, so its bytes are relayed."""
    folder = tempfile.mkdtemp()
    server = None
    try:
        path = os.path.join(folder, "flight")
        server = _flight_server(path, function)
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(path)
            threading.Thread(target=_relay, args=(local, connected), daemon=True).start()
            _relay(connected, local)
    finally:
        if server is not None:
            server.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _flight_server(path: str, function: Function) -> Any:
    from pyarrow import flight

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_exchange(self, _: Any, __: Any, reader: Any, writer: Any) -> None:
            writer.begin(function.result)
            for chunk in reader:
                answer = function.answer(chunk.data)
                if isinstance(answer, Failed):
                    writer.write_metadata(json.dumps(answer.message).encode())
                else:
                    writer.write_batch(answer)

    return Server(f"grpc+unix://{path}")


def _relay(source: socket.socket, sink: socket.socket) -> None:
    """Passes bytes on until one side ends, and then ends both."""
    buffer = memoryview(bytearray(_RELAYED_BYTES))
    try:
        while count := source.recv_into(buffer):
            sink.sendall(buffer[:count])
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
