"""Effects of user code on its process: its output and its exit.

Invariant: `SystemExit` ends the process, as everywhere in Python, and is never an answer.
"""

from __future__ import annotations

import os
import sys


def line_buffered() -> None:
    """Writes the output of user code line by line to descriptors 1 and 2."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")


def flush() -> None:
    """Writes the output of user code, so that it belongs to the call that printed it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # Closed or replaced by the user's code, which then handles its output.
            pass


class _UserCode:
    """A context around user code: `SystemExit` ends the process here, because in a thread it would
    end only the thread."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, raised: BaseException | None, trace: object) -> None:
        if isinstance(raised, SystemExit):
            flush()
            os._exit(_exit_code(raised.code))


# It has no state, so that a call need not make one.
user_code = _UserCode()


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr, flush=True)
    return 1
