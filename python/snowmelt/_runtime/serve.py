"""The process inside a sandbox that runs a user's Python code: `main(listener)`.

A thread for each connection; a connection is for one piece of code
(`crates/wire/src/functions/function.rs` describes the dialogue). The process runs until it is
killed.
Invariant: an error on one connection ends at most that connection; only `SystemExit` and the kernel
end the process.
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

from .. import _files, _secrets
from . import code, frames, function, process, warm_up_call
from .failure import Failed
from .frames import Connection, ProtocolError

CHANNEL_DESCRIPTOR = 3

# The path of the sandbox's Python code (`crates/node/src/user_code/unit.rs`).
CODE = "/opt/snowmelt/code/code.json"

# Names the code that the first connection will load. Executing it takes as long as the platform
# takes to notice this process and to connect.
LOAD_AHEAD = "SNOWMELT_LOAD_AHEAD"

# pyarrow's allocator starts a thread when it is loaded unless this is set before, and a process
# with threads must not be forked, so it could not be a zygote.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


class FirstThread:
    """The thread of the first connection, started before there is a request: it makes a warm-up
    call, so that its own memory is warm, and waits. It serves once `main` runs, and `main` accepts
    further connections once it has loaded its code."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._warmed_up, self._started, self._loaded = (threading.Lock() for _ in range(3))
        self.failed: BaseException | None = None
        for lock in (self._warmed_up, self._started, self._loaded):
            lock.acquire()
        threading.Thread(target=self._run, daemon=True).start()
        self._warmed_up.acquire()
        # A process that waits for its order keeps the interpreter's lock, and the thread needs that
        # lock to reach its wait.
        time.sleep(0.001)

    def begin(self) -> None:
        """Starts serving, and waits until the code is loaded."""
        self._started.release()
        self._loaded.acquire()

    def _run(self) -> None:
        try:
            warm_up_call.run()
        except BaseException as error:
            self.failed = error
            return
        finally:
            self._warmed_up.release()
        try:
            connected, _ = self._listener.accept()
            self._started.acquire()
            _connection(connected, self._accept_others)
        finally:
            self._accept_others()

    def _accept_others(self) -> None:
        if self._loaded.locked():
            self._loaded.release()


_first: list[FirstThread] = []


def start_first_thread(listener: socket.socket) -> None:
    """Starts the thread of the first connection, for a `main` that may run much later, and reads
    the code of this sandbox."""
    code.prefetch(CODE)
    first = FirstThread(listener)
    if first.failed is not None:
        raise first.failed
    _first.append(first)


def main(listener: socket.socket) -> None:
    """Accepts connections forever."""
    if not _first:
        process.line_buffered()
    _files.enter(os.environ.get(_files.VARIABLE))
    _secrets.enter(os.environ.pop(_secrets.VARIABLE, None))
    expected = os.environ.pop(LOAD_AHEAD, None)
    if expected is not None:
        code.preload(expected)
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
            pass  # The platform closed this connection, and knows the reason.
        except (ProtocolError, ValueError, KeyError) as error:
            print(f"snowmelt: {error}", file=sys.stderr, flush=True)


def answer_all(connection: Connection, loaded: Callable[[], None]) -> None:
    """Serves a connection to its end; calls `loaded` when its code is loaded."""
    load = json.loads(connection.expect(frames.LOAD))
    ready: dict[str, Any] = {"pid": os.getpid()}
    try:
        answer = _MODES[load["mode"]](load)
        if load["mode"] != "describe":
            ready.update(_set_up(load))
    except Failed as failed:
        process.flush()
        connection.send_json(frames.FAILURE, failed.message)
        return
    process.flush()
    connection.send_json(frames.READY, ready)
    loaded()
    answer(connection)


def _set_up(load: dict[str, Any]) -> dict[str, int]:
    """Runs what the code sets up before its first call, and says how long that took."""
    loaded = code.load(load["code"], load["function"])
    if all(setup.is_done for setup in loaded.setups):
        return {}
    began = time.monotonic()
    loaded.set_up(load["function"])
    return {"setup_us": max(1, round((time.monotonic() - began) * 1e6))}


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


def _aggregate(load: dict[str, Any]) -> Any:
    from . import aggregate

    function = aggregate.load(load)
    return lambda connection: aggregate.serve(connection, function)


def _describe(load: dict[str, Any]) -> Any:
    from . import udf

    signatures = udf.describe(load)
    return lambda connection: connection.send(frames.RETURN, signatures.encode())


_MODES = {
    "function": _function,
    "map": _function,
    "udf": _udf,
    "aggregate": _aggregate,
    "describe": _describe,
}


def channel() -> socket.socket:
    """The listening socket that the platform left open: SNOWMELT_CHANNEL_FD, or descriptor 3."""
    return socket.socket(fileno=int(os.environ.get("SNOWMELT_CHANNEL_FD", CHANNEL_DESCRIPTOR)))


if __name__ == "__main__":
    main(channel())
