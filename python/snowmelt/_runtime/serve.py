"""The process inside a sandbox that runs a user's Python code: `main(listener)`.

A thread for each connection; a connection is for one piece of code
(`crates/wire/src/function.rs` has the dialogue). The process lives until it is killed. Invariant:
what comes over one connection ends at most that connection; only `SystemExit` and what the kernel
does end the process.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from . import code, frames, function, process, rehearse
from .failure import Failed
from .frames import Connection, ProtocolError

CHANNEL_DESCRIPTOR = 3

# Where a sandbox has its Python code (`crates/node/src/unit.rs`).
CODE = "/opt/snowmelt/code/code.json"

# Names the code that the first connection will ask for. Executing it takes as long as the platform
# takes to hear that this process is there, and to connect.
LOAD_AHEAD = "SNOWMELT_LOAD_AHEAD"

# pyarrow's allocator starts a thread when it is loaded unless this is set before, and a process
# with threads is no zygote: it must not be forked.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


class FirstThread:
    """The thread of the first connection, which is there before anybody asks for this process: it
    rehearses, so that its own memory is warm, and waits. It serves once `main` runs, and `main`
    accepts once it has loaded its code."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._rehearsed, self._begun, self._loaded = (threading.Lock() for _ in range(3))
        self.failed: BaseException | None = None
        for lock in (self._rehearsed, self._begun, self._loaded):
            lock.acquire()
        threading.Thread(target=self._run, daemon=True).start()
        self._rehearsed.acquire()
        # A process that waits for its order keeps the interpreter's lock, and the thread needs
        # that to get to where it waits.
        time.sleep(0.001)

    def begin(self) -> None:
        """Has it serve, and waits until it has loaded."""
        self._begun.release()
        self._loaded.acquire()

    def _run(self) -> None:
        try:
            rehearse.run()
        except BaseException as error:
            self.failed = error
            return
        finally:
            self._rehearsed.release()
        try:
            connected, _ = self._listener.accept()
            self._begun.acquire()
            _connection(connected, self._others)
        finally:
            self._others()

    def _others(self) -> None:
        if self._loaded.locked():
            self._loaded.release()


_first: list[FirstThread] = []


def stand_by(listener: socket.socket) -> None:
    """Starts the thread of the first connection, for a `main` that may come much later, and reads
    the code of this sandbox."""
    code.read_ahead(CODE)
    first = FirstThread(listener)
    if first.failed is not None:
        raise first.failed
    _first.append(first)


def main(listener: socket.socket) -> None:
    """Accepts connections for ever."""
    if not _first:
        process.line_buffered()
    expected = os.environ.pop(LOAD_AHEAD, None)
    if expected is not None:
        code.load_ahead(expected)
    for first in _first:
        first.begin()
    while True:
        connected, _ = listener.accept()
        threading.Thread(target=_connection, args=(connected,), daemon=True).start()


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
    loaded = code.load(load["code"], name)
    handler = loaded.callable(name)
    code.takes_one(handler, name, loaded.file)
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
