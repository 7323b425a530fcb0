"""A warm-up call: a call of a platform function, from the load to the answer, before user code.

In a zygote it fills the interpreter's caches; in a preforked child it takes the page faults of a
first call. Invariant: it leaves nothing that user code could see.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

from . import code, failure, frames, process
from .frames import Connection

FILE = "snowmelt_warm_up.py"
CODE = {"kind": "source", "file": FILE, "text": "def handler(event):\n    return [event]\n"}
PATH = "/tmp/.snowmelt-warm-up"


def run() -> None:
    """Runs both sides of a connection."""
    from . import serve  # which imports this module

    with open(PATH, "w") as file:
        json.dump(CODE, file)
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs:
            platform = Connection(ours)
            load = {"mode": "function", "code": PATH, "function": "handler", "on_error": "raise"}
            platform.send_json(frames.LOAD, load)
            platform.send_json(frames.CALL, {"invocation": "", "event": None})
            platform.send(frames.END, b"")
            serve.answer_all(Connection(theirs), threading.Event().set)
            platform.expect(frames.READY)
            platform.expect(frames.RETURN)
    finally:
        forget()
    process.line_buffered()


def forget() -> None:
    """Removes all traces."""
    os.unlink(PATH)
    loaded = code.forget(PATH)
    if loaded is not None:
        sys.modules.pop(loaded.names["__name__"], None)
    failure.disown(FILE)
