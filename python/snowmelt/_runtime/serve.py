"""The process inside a sandbox that runs a user's Python code: `main(listener)`.

A thread for each connection; a connection is for one piece of code
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


# Where `main` gives the listener to the thread of the first connection, if that stands by; and
# whether the main thread is to accept the others.
_listeners: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
_others: threading.Event | None = None


def stand_by() -> None:
    """Starts the thread of the first connection: a child that is not asked for yet has time."""
    global _others
    _others = threading.Event()
    threading.Thread(target=_first, args=(_others,), daemon=True).start()


def main(listener: socket.socket) -> None:
    """Accepts connections for ever."""
    process.line_buffered()
    if _others is not None:
        _listeners.put(listener)
        _others.wait()
    while True:
        connected, _ = listener.accept()
        threading.Thread(target=_connection, args=(connected,), daemon=True).start()


def _first(others: threading.Event) -> None:
    try:
        connected, _ = _listeners.get().accept()
        _connection(connected, others.set)
    finally:
        others.set()


def _connection(connected: socket.socket, loaded: Callable[[], None] = lambda: None) -> None:
    with connected:
        try:
            answer_all(Connection(connected), loaded)
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
