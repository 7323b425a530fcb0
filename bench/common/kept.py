"""HTTP on connections that are kept open, with little work for the client, which shares the machine
with what it measures."""

import json
import selectors
import socket
from collections.abc import Iterator, Sequence
from typing import Any


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """A request as it is sent. An underscore in the name of a header is a hyphen."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"content-length: {len(content)}"]
    if content:
        lines.append("content-type: application/json")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


class KeptConnection:
    """A connection over which one request after another is sent."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._arrived = b""

    def ask(self, asked: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        self.socket.sendall(asked)
        while (answer := self._take()) is None:
            self._read()
        return answer

    def poll(self) -> tuple[int, bytes] | None:
        """The answer, once something of it has arrived and it is whole."""
        self._read()
        return self._take()

    def close(self) -> None:
        self.socket.close()

    def _read(self) -> None:
        part = self.socket.recv(1 << 16)
        if not part:
            raise ConnectionError(f"the server closed the connection: {self._arrived[:200]!r}")
        self._arrived += part

    def _take(self) -> tuple[int, bytes] | None:
        head, between, rest = self._arrived.partition(b"\r\n\r\n")
        if not between:
            return None
        status = int(head[9:12])
        lines = (line.partition(b":") for line in head.lower().split(b"\r\n")[1:])
        headers = {name: value.strip() for name, _, value in lines}
        if b"content-length" in headers:
            length = int(headers[b"content-length"])
        elif headers.get(b"transfer-encoding") == b"chunked":
            # The body as it is, with its sizes: only its end is of interest.
            end = rest.find(b"\r\n0\r\n\r\n")
            length = end + 7 if end >= 0 else len(rest) + 1
        else:
            length = 0
        if len(rest) < length:
            return None
        self._arrived = rest[length:]
        return status, rest[:length]


Answer = tuple[int, bytes]


def ask_all(connections: Sequence[KeptConnection], requests: Iterator[bytes]) -> list[Answer]:
    """Sends all requests, one at a time on each connection. Returns the answers as they came."""
    answers = []
    with selectors.DefaultSelector() as ready:
        for connection in connections:
            asked = next(requests, None)
            if asked is not None:
                ready.register(connection.socket, selectors.EVENT_READ, connection)
                connection.socket.sendall(asked)
        while ready.get_map():
            for key, _ in ready.select():
                answer = key.data.poll()
                if answer is None:
                    continue
                answers.append(answer)
                asked = next(requests, None)
                if asked is None:
                    ready.unregister(key.fileobj)
                else:
                    key.data.socket.sendall(asked)
    return answers
