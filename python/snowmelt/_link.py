"""How a lease reaches its instance: by a descriptor of this machine, or over the connection of the
lease.

Invariant: a link ends with its process, and its instance with it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import socket
import time
from collections.abc import Iterator
from typing import Any, Protocol

from ._http import end
from ._remote_server import RemoteServer
from ._runtime import frames
from ._runtime.frames import Connection, ProtocolError
from ._server import Server
from .errors import Error, from_report, make

_REQUEST, _REPLY = 18, 19

# How long the platform may take to say why an instance has ended.
_EXPLAINED_WITHIN_SECONDS = 5.0

# How long the platform may take to take an instance back.
_RETURNED_WITHIN_SECONDS = 5.0


class Link(Protocol):
    """A connection to the platform for one lease, and one to the instance. One thread uses it."""

    instance: Connection
    """To the instance, once it is leased."""

    shares_memory: bool
    """Whether a descriptor can be sent to the instance, once it is leased."""

    host: str | None
    """Of the instance, once it is leased, if it is not on the platform's own host."""

    def ask(self, request: dict[str, Any]) -> float:
        """Waits for the instance. Gives the most seconds for a batch. Raises `Error`."""

    def settimeout(self, seconds: float) -> None:
        """For the next step of the dialogue with the instance."""

    def is_idle(self) -> bool:
        """False once the platform or the instance has ended: then there is something to read."""

    def why_ended(self) -> Error | None:
        """What the platform says of the end of the instance, or that it cannot be reached."""

    def give_back(self) -> str:
        """Returns the instance. Gives the beginning of what it has printed. Raises `OSError` and
        `ProtocolError`."""

    def interrupt(self) -> None:
        """Ends it while another thread uses it."""

    def close(self) -> None:
        """Ends it."""


def link(server: Server | RemoteServer) -> Link:
    """A new link to a platform. Raises `Error`."""
    return Relayed(server) if isinstance(server, RemoteServer) else Passed(server)


class Passed:
    """To a platform of this machine, which passes a descriptor: nothing is between the engine and
    the function, unless the instance is on another host of the platform's cluster."""

    def __init__(self, server: Server) -> None:
        self.shares_memory = True
        self.host: str | None = None
        self._path, self._interrupted = server.path, False
        self._platform = _connect(server)
        self._control = Connection(self._platform)
        self._socket: socket.socket | None = None

    def ask(self, request: dict[str, Any]) -> float:
        try:
            self._control.send_json(_REQUEST, request)
            frame = self._control.receive_with_descriptor()
        except (OSError, ProtocolError) as error:
            raise make("SM-0503", f"the platform ended the lease: {error}") from None
        kind, answer, descriptor = frame or (0, b"", None)
        if kind == _REPLY and descriptor is not None:
            self._socket = socket.socket(fileno=descriptor)
            self.instance = Connection(self._socket)
            self.host = _host(answer)
            self.shares_memory = self.host is None
            return _timeout(answer)
        if descriptor is not None:
            os.close(descriptor)
        raise _refused(kind, answer)

    def settimeout(self, seconds: float) -> None:
        if self._socket is not None:
            self._socket.settimeout(seconds)

    def is_idle(self) -> bool:
        both = [one for one in (self._platform, self._socket) if one is not None]
        return not select.select(both, [], [], 0)[0]

    def why_ended(self) -> Error | None:
        try:
            self._platform.settimeout(_EXPLAINED_WITHIN_SECONDS)
            frame = self._control.receive()
        except TimeoutError:
            return None
        except (OSError, ProtocolError):
            frame = None
        if self._interrupted:
            return None
        if frame is None:
            return make(
                "SM-0503",
                f"the platform at {self._path} has ended, and its instances with it",
                hint="start it again: `snowmelt up`",
                retryable=True,
            )
        return from_report(json.loads(frame[1])) if frame[0] == frames.FAILURE else None

    def give_back(self) -> str:
        self._platform.settimeout(_RETURNED_WITHIN_SECONDS)
        self._control.send(frames.END, b"")
        return _printed(self._control.receive())

    def interrupt(self) -> None:
        self._interrupted = True
        for connected in (self._platform, self._socket):
            if connected is not None:
                end(connected)

    def close(self) -> None:
        self._platform.close()
        if self._socket is not None:
            self._socket.close()


class Relayed:
    """To a platform of another host, which copies the bytes of the instance's connection."""

    shares_memory = False

    def __init__(self, server: RemoteServer) -> None:
        self._server = server
        self._platform = server.lease()
        self._control = Connection(self._platform)
        self._bytes = _Bytes(self._control)
        self.instance = Connection(self._bytes)
        self.host: str | None = None

    def ask(self, request: dict[str, Any]) -> float:
        try:
            with _kernel_timeouts_apart():
                self._control.send_json(_REQUEST, request)
                frame = self._control.receive()
        except (OSError, ProtocolError) as error:
            raise self._server.lost(error) from None
        kind, answer = frame or (0, b"")
        if kind == _REPLY:
            self.host = _host(answer)
            return _timeout(answer)
        raise _refused(kind, answer)

    def settimeout(self, seconds: float) -> None:
        self._platform.settimeout(seconds)

    def is_idle(self) -> bool:
        # What TLS has decrypted is not in the kernel any more.
        pending = getattr(self._platform, "pending", lambda: 0)()
        if pending or self._control.has_more or self._bytes.last is not None:
            return False
        return not select.select([self._platform], [], [], 0)[0]

    def why_ended(self) -> Error | None:
        try:
            said = self._bytes.last or self._last()
        except (OSError, ProtocolError) as error:
            return self._server.lost(self._bytes.error or error)
        if said is None:
            return self._server.lost(self._bytes.error)
        return from_report(json.loads(said[1])) if said[0] == frames.FAILURE else None

    def _last(self) -> tuple[int, frames.Payload] | None:
        """The last frame of the platform; what is left of answers is dropped."""
        deadline = time.monotonic() + _EXPLAINED_WITHIN_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            self._platform.settimeout(left)
            if not self._bytes.recv(1 << 16):
                return self._bytes.last
        return None

    def give_back(self) -> str:
        self._platform.settimeout(_RETURNED_WITHIN_SECONDS)
        self._control.send(frames.END, b"")
        return _printed(self._control.receive())

    def interrupt(self) -> None:
        end(self._platform)

    def close(self) -> None:
        self._platform.close()


class _Bytes:
    """A socket to an instance, whose bytes are in frames on the connection of its lease."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        # Of the frame that is being read.
        self._left = 0
        # The frame with which the platform ended the lease, and the error of the connection.
        self.last: tuple[int, frames.Payload] | None = None
        self.error: OSError | None = None

    def recv(self, most: int) -> bytes:
        buffer = bytearray(most)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def recv_into(self, buffer: memoryview) -> int:
        """As that of a socket: 0 at the end of the lease."""
        with self._noting():
            while self._left == 0:
                if self.last is not None or not self._begin():
                    return 0
            count = self._control.readinto(buffer[: self._left])
            self._left -= count
            return count

    def _begin(self) -> bool:
        """Reads the header of the next frame; False if it ends the lease, or nothing comes."""
        header = frames.read_header(self._control)
        if header is None:
            return False
        length, kind = header
        if kind == frames.RELAYED:
            self._left = length
            return True
        if kind not in (frames.FAILURE, frames.END):
            raise ProtocolError(f"the platform sent a frame of kind {kind}")
        self.last = (kind, frames.read_payload(self._control, length))
        return False

    def sendall(self, data: Any) -> None:
        with self._noting():
            self._control.send(frames.RELAYED, data)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            with _kernel_timeouts_apart():
                yield
        except TimeoutError:
            raise
        except OSError as error:
            self.error = error
            raise


@contextlib.contextmanager
def _kernel_timeouts_apart() -> Iterator[None]:
    """An end of time that the kernel reports is that of the host, and not that of a call."""
    try:
        yield
    except TimeoutError as error:
        if error.errno != errno.ETIMEDOUT:
            raise
        raise ConnectionAbortedError(error.errno, os.strerror(error.errno)) from None


def _printed(last: tuple[int, frames.Payload] | None) -> str:
    """What the last frame of a platform says that the instance has printed; earlier ones say
    nothing."""
    if last is None or last[0] != frames.END or not last[1]:
        return ""
    try:
        return str(json.loads(last[1])["printed"])
    except (ValueError, KeyError, TypeError):
        raise ProtocolError("the platform's end of the lease is no JSON object") from None


def _timeout(answer: frames.Payload) -> float:
    return int(json.loads(answer)["timeout_ms"]) / 1000 or 1e6


def _host(answer: frames.Payload) -> str | None:
    host = json.loads(answer).get("host")
    return None if host is None else str(host)


def _refused(kind: int, answer: frames.Payload) -> Error:
    if kind == frames.FAILURE:
        return from_report(json.loads(answer))
    return make("SM-0503", "the platform ended the lease without a reason")


def _connect(server: Server) -> socket.socket:
    path = os.path.splitext(server.path)[0] + ".lease"
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.connect(path)
    except OSError as error:
        connected.close()
        raise server.lost(error) from None
    return connected
