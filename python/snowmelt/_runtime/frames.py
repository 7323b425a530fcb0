"""Frames: 4 bytes of length (little endian), 1 byte of kind, 3 bytes of zero, then the payload.

The format of `crates/wire/src/frames/frame.rs`. Invariant: a length is checked before memory is
allocated for it.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Protocol

LOAD, READY, CALL, RETURN, FAILURE, SCHEMA, BATCH, END = range(1, 9)
EVENT, PROFILE = 15, 16
SHARED, SHARED_BATCH = 36, 37
AGGREGATE = 40
TRANSPORT = 48
RELAYED = 50

MAX_PAYLOAD_BYTES = 256 << 20
# The longest answer of a function that the platform accepts (`crates/node/src/process/limits.rs`).
MAX_ANSWER_BYTES = 64 << 20

Payload = bytes | bytearray

_HEADER = struct.Struct("<IB3x")
# Below this size one system call with a copied payload is cheaper than two without.
_JOIN_BYTES = 64 << 10
# Most calls and answers of functions are shorter.
_SHORT_BYTES = 1 << 10


class ProtocolError(Exception):
    """The other side violated the protocol, or closed the connection inside a frame."""


class Closed(ProtocolError):
    """The other side closed the connection inside a frame."""


class TooLong(Exception):
    """The message is longer than any frame may be; nothing of it was sent."""


def answer(text: str) -> bytes:
    """The payload of a function's answer. Raises `TooLong`."""
    payload = text.encode()
    if len(payload) > MAX_ANSWER_BYTES:
        raise TooLong(f"{len(payload):,} bytes, and {MAX_ANSWER_BYTES:,} are the most")
    return payload


class Source(Protocol):
    """A source of frames: a socket's or a response's `readinto`."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


def read(source: Source) -> tuple[int, bytearray] | None:
    """One frame as (kind, payload); None where the other side ended between two frames."""
    header = read_header(source)
    if header is None:
        return None
    length, kind = header
    return kind, read_payload(source, length)


def read_header(source: Source) -> tuple[int, int] | None:
    """The length and the kind of the next frame; None where the other side ended before it."""
    header = bytearray(_HEADER.size)
    if not _fill(source, header, may_end=True):
        return None
    length, kind = _HEADER.unpack(header)
    if length > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a frame of {length} bytes is longer than the limit")
    return length, kind


def read_payload(source: Source, length: int) -> bytearray:
    """The payload of a frame whose header was read."""
    payload = bytearray(length)
    _fill(source, payload, may_end=False)
    return payload


def _fill(source: Source, buffer: bytearray, may_end: bool) -> bool:
    view, done = memoryview(buffer), 0
    while done < len(buffer):
        count = source.readinto(view[done:])
        if not count:
            if may_end and done == 0:
                return False
            raise Closed("the other side closed the connection inside a frame")
        done += count
    return True


class Connection:
    """A connected socket that carries frames, or what has its methods; one thread reads and writes
    it."""

    def __init__(self, connected: Any) -> None:
        self._socket = connected
        # Bytes that were received together with a header.
        self._buffered = b""

    def readinto(self, buffer: memoryview) -> int:
        """Receives available bytes, at most the buffer's length; 0 at the end."""
        if not self._buffered:
            if len(buffer) > _HEADER.size:
                received: int = self._socket.recv_into(buffer)
                return received
            # A short frame usually arrives whole.
            self._buffered = self._socket.recv(_SHORT_BYTES)
        count = min(len(buffer), len(self._buffered))
        buffer[:count] = self._buffered[:count]
        self._buffered = self._buffered[count:]
        return count

    @property
    def has_more(self) -> bool:
        """Whether something was received that is not read."""
        return bool(self._buffered)

    def receive(self) -> tuple[int, Payload] | None:
        """The next frame; None at the end."""
        if not self._buffered:
            # A short frame usually arrives whole and alone. A call after an idle time finds the
            # processor's caches cold, so each step that is left out counts.
            self._buffered = self._socket.recv(_SHORT_BYTES)
            if len(self._buffered) >= _HEADER.size:
                length, kind = _HEADER.unpack_from(self._buffered)
                if len(self._buffered) == _HEADER.size + length:
                    payload, self._buffered = self._buffered[_HEADER.size :], b""
                    return kind, payload
            elif not self._buffered:
                return None
        return read(self)

    def receive_with_descriptor(self) -> tuple[int, Payload, int | None] | None:
        """The next frame, and a descriptor if one comes with it; None at the end."""
        # A descriptor comes with the first bytes of its frame, and no frame before it is read with
        # them: whoever sends one has waited for an answer.
        if self._buffered:
            frame = self.receive()
            return frame and (*frame, None)
        received, descriptors, _, _ = socket.recv_fds(self._socket, _SHORT_BYTES, 1)
        self._buffered = received
        frame = read(self) if received else None
        return frame and (*frame, descriptors[0] if descriptors else None)

    def send_with_descriptor(self, kind: int, payload: bytes, descriptor: int) -> None:
        """Sends a short frame with a descriptor."""
        message = _HEADER.pack(len(payload), kind) + payload
        sent = socket.send_fds(self._socket, [message], [descriptor])
        self._socket.sendall(message[sent:])

    def expect(self, kind: int) -> Payload:
        """The payload of the next frame, which must be of this kind."""
        frame = self.receive()
        if frame is None or frame[0] != kind:
            found = "the end" if frame is None else f"a frame of kind {frame[0]}"
            raise ProtocolError(f"expected a frame of kind {kind}, received {found}")
        return frame[1]

    def send(self, kind: int, payload: Any) -> None:
        """Sends a frame; the payload is any bytes-like object. Raises `TooLong`."""
        view = payload if type(payload) is bytes else memoryview(payload).cast("B")
        if len(view) > MAX_PAYLOAD_BYTES:
            raise TooLong(f"{len(view):,} bytes, and {MAX_PAYLOAD_BYTES:,} are the most")
        header = _HEADER.pack(len(view), kind)
        if len(view) <= _JOIN_BYTES:
            self._socket.sendall(header + view)
        else:
            self._socket.sendall(header)
            self._socket.sendall(view)

    def send_json(self, kind: int, message: Any) -> None:
        """Sends a frame with a message that is serialisable as JSON."""
        self.send(kind, json.dumps(message).encode())
