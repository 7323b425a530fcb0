"""HTTP on the platform's unix socket: one request for each connection.

Invariant: a request that ends early closes its connection, which makes the platform cancel the
work.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

from . import _server
from ._server import Server
from .errors import Error, from_report, make

_MOST_REQUEST_BYTES = 256 << 20

# How often a server that takes long for a request is asked whether it answers at all.
_ASKED_EVERY_SECONDS = 5.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a connected unix socket."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__("localhost")
        self.sock = connected


class Client:
    """Sends requests to one platform for one tenant, by default that of this user; thread-safe."""

    def __init__(self, server: Server, tenant: str | None = None) -> None:
        self.server = server
        self.tenant = tenant
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer, or None if it is empty. A body of bytes is sent unchanged, and so is one
        with `read` and `size`; any other as JSON. Raises `Error`."""
        with self.stream(method, path, body) as response:
            text = response.read()
        return json.loads(text) if text else None

    @contextlib.contextmanager
    def stream(
        self, method: str, path: str, body: Any = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The response as a stream. Raises `Error`, also if the connection fails."""
        connected = self.server.connect()
        with self._lock:
            self._open.add(connected)
        try:
            response = self._answer(_send(connected, method, path, body, self.tenant))
            if response.status >= 400:
                raise _problem(response)
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise self.server.lost(error) from None
        finally:
            with self._lock:
                self._open.discard(connected)
            _close(connected)

    def _answer(self, connection: _UnixConnection) -> http.client.HTTPResponse:
        """The response once it begins. A server whose process is stopped is an error, and one that
        takes long is not."""
        begins = select.poll()
        begins.register(connection.sock, select.POLLIN)
        while not begins.poll(_ASKED_EVERY_SECONDS * 1000):
            self.server.check()
        return connection.getresponse()

    def cancel(self) -> None:
        """Ends every running request."""
        with self._lock:
            for connected in self._open:
                with contextlib.suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)


def _send(
    connected: socket.socket, method: str, path: str, body: Any, tenant: str | None
) -> _UnixConnection:
    connection = _UnixConnection(connected)
    headers = {"Connection": "close"}
    if tenant is not None:
        headers["snowmelt-tenant"] = tenant
    payload = None
    if isinstance(body, bytes):
        payload = body
        headers["Content-Type"] = "application/octet-stream"
    elif hasattr(body, "read"):
        payload = body
        headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(body.size)}
    elif body is not None:
        payload = json.dumps(body, allow_nan=False).encode()
        if len(payload) > _MOST_REQUEST_BYTES:
            # The server would refuse it while it is being sent, and its answer would not be read.
            raise make("SM-0509", f"the request has {len(payload):,} bytes, at most 256 MiB")
        headers["Content-Type"] = "application/json"
    connection.request(method, path, body=payload, headers=headers)
    return connection


def _problem(response: http.client.HTTPResponse) -> Error:
    text = response.read()
    try:
        report = json.loads(text)
        if isinstance(report, dict) and "code" in report:
            return from_report(report)
    except ValueError:
        pass
    body = text[:200].decode(errors="replace")
    return make("SM-0507", f"the server answered {response.status}: {body}")


def _close(connected: socket.socket) -> None:
    # The response also holds the descriptor, so `close` alone would not end the connection.
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()


def client(tenant: str | None = None) -> Client:
    """A client of this process's platform, for a tenant or the one of `SNOWMELT_TENANT`."""
    return Client(_server.current(), tenant or os.environ.get("SNOWMELT_TENANT") or None)
