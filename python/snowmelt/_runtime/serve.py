"""The process inside a sandbox that runs a user's Python code: `main(listener)`.

A thread for each connection, which waits for it; a connection is for one piece of code
(`crates/wire/src/function.rs` has the dialogue). The process lives until it is killed. Invariant:
what comes over one connection ends at most that connection; only `SystemExit` and what the kernel
does end the process.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from . import code, frames, function, process
from .failure import Failed
from .frames import Connection, ProtocolError

CHANNEL_DESCRIPTOR = 3

# pyarrow's allocator starts a thread when it is loaded unless this is set before, and a process
# with threads is no zygote: it must not be forked.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


# Where `main` gives the listener to the thread that accepts the first connection.
_listeners: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
_standing_by: list[threading.Thread] = []


def stand_by() -> None:
    """Starts the thread of the first connection: a child that is not asked for yet has time."""
    first = threading.Thread(target=_first, daemon=True)
    first.start()
    _standing_by.append(first)


def main(listener: socket.socket) -> None:
    """Serves connections for ever."""
    process.line_buffered()
    if not _standing_by:
        stand_by()
    _listeners.put(listener)
    threading.Event().wait()


def _first() -> None:
    _accept(_listeners.get())


def _accept(listener: socket.socket) -> None:
    """Serves one connection, and then those that no other thread could be started for."""
    while True:
        try:
            connected, _ = listener.accept()
        except OSError as error:
            print(f"snowmelt: cannot accept a connection: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        successor = Successor(listener)
        try:
            _connection(connected, successor)
        finally:
            successor.start()
        if successor.started:
            return


class Successor:
    """The thread for the next connection. It is started when the code of this one is loaded, so
    that starting it delays no load."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.started = False

    def start(self) -> None:
        """Starts it unless it was, or there are as many threads as there may be."""
        if self.started:
            return
        try:
            threading.Thread(target=_accept, args=(self._listener,), daemon=True).start()
            self.started = True
        except RuntimeError:
            pass


def _connection(connected: socket.socket, successor: Successor) -> None:
    with connected:
        try:
            answer_all(Connection(connected), successor.start)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The platform gave up on this connection; it knows why.
        except (ProtocolError, ValueError, KeyError) as error:
            print(f"snowmelt: {error}", file=sys.stderr, flush=True)


def answer_all(connection: Connection, loaded: Callable[[], None]) -> None:
    """Serves a connection to its end; calls `loaded` when its code is there."""
    load = json.loads(connection.expect(frames.LOAD))
    try:
        answer = _MODES[load["mode"]](load)
    except Failed as failed:
        process.flush()
        connection.send_json(frames.FAILURE, failed.message)
        return
    process.flush()
    connection.send_json(frames.READY, {"pid": os.getpid()})
    loaded()
    answer(connection)


def _function(load: dict[str, Any]) -> Any:
    name = load["function"]
    handler = code.load(load["code"], name).callable(name)
    answer = function.map_answer if load["mode"] == "map" else function.event_answer
    return lambda connection: function.serve(connection, handler, name, answer)


def _udf(load: dict[str, Any]) -> Any:
    from . import udf

    evaluate, signature = udf.load(load)
    return lambda connection: udf.serve(connection, evaluate, signature)


def _describe(load: dict[str, Any]) -> Any:
    from . import udf

    signatures = udf.describe(load)
    return lambda connection: connection.send(frames.RETURN, signatures.encode())


_MODES = {"function": _function, "map": _function, "udf": _udf, "describe": _describe}


def channel() -> socket.socket:
    """The listening socket that the platform left open: SNOWMELT_CHANNEL_FD, or descriptor 3."""
    return socket.socket(fileno=int(os.environ.get("SNOWMELT_CHANNEL_FD", CHANNEL_DESCRIPTOR)))


if __name__ == "__main__":
    main(channel())
