"""HTTP on the platform's unix socket or its address: one request for each connection.

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
from ._http import Connected, end, problem
from ._remote_server import RemoteServer
from ._server import Server
from .errors import make

_MAX_REQUEST_BYTES = 256 << 20

# How often a server that takes long for a request is asked whether it answers at all.
_ASKED_EVERY_SECONDS = 5.0


class Client:
    """Sends requests to one platform for one tenant, by default that of this user; thread-safe."""

    def __init__(self, server: Server | RemoteServer, tenant: str | None = None) -> None:
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
            response = self._answer(self._send(connected, method, path, body))
            if response.status >= 400:
                raise problem(response)
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise self.server.lost(error) from None
        finally:
            with self._lock:
                self._open.discard(connected)
            _close(connected)

    def _answer(self, connection: Connected) -> http.client.HTTPResponse:
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
                end(connected)

    def _send(self, connected: socket.socket, method: str, path: str, body: Any) -> Connected:
        connection = Connected(connected, self.server.host)
        headers, payload = _content(body)
        headers |= {"Connection": "close", **self.server.headers()}
        if self.tenant is not None:
            headers["snowmelt-tenant"] = self.tenant
        connection.request(method, path, body=payload, headers=headers)
        return connection


def _content(body: Any) -> tuple[dict[str, str], Any]:
    """The headers of a body, and what is sent."""
    headers: dict[str, str] = {}
    payload = None
    if isinstance(body, bytes):
        payload = body
        headers["Content-Type"] = "application/octet-stream"
    elif hasattr(body, "read"):
        payload = body
        headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(body.size)}
    elif body is not None:
        payload = json.dumps(body, allow_nan=False).encode()
        if len(payload) > _MAX_REQUEST_BYTES:
            # The server would refuse it while it is being sent, and its answer would not be read.
            raise make("SM-0509", f"the request has {len(payload):,} bytes, at most 256 MiB")
        headers["Content-Type"] = "application/json"
    return headers, payload


def _close(connected: socket.socket) -> None:
    # The response also holds the descriptor, so `close` alone would not end the connection.
    end(connected)
    connected.close()


def client(tenant: str | None = None) -> Client:
    """A client of this process's platform, for a tenant or the one of `SNOWMELT_TENANT`."""
    server = _server.current()
    of_context = server.tenant if isinstance(server, RemoteServer) else None
    return Client(server, tenant or os.environ.get("SNOWMELT_TENANT") or of_context)
