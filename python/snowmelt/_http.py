"""HTTP on a connection that is there already."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket

from .errors import Error, from_report, make


class Connected(http.client.HTTPConnection):
    """HTTP over a connected socket, for a host that the request names."""

    def __init__(self, connected: socket.socket, host: str = "localhost") -> None:
        super().__init__(host)
        self.sock = connected
        # A connection that has ended is not made again.
        self.auto_open = 0


def problem(response: http.client.HTTPResponse) -> Error:
    """The error that a response describes."""
    text = response.read()
    try:
        report = json.loads(text)
        if isinstance(report, dict) and "code" in report:
            return from_report(report)
    except ValueError:
        pass
    body = text[:200].decode(errors="replace")
    return make("SM-0507", f"the server answered {response.status}: {body}")


def end(connected: socket.socket) -> None:
    """Ends a connection that another thread or a response may be using."""
    # That of a TLS socket would also drop its state, which the other thread needs.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
