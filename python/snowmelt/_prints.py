"""Shows what functions print in their sandboxes on stderr of this process, with their names.

Invariant: the text is bounded and cannot act on a terminal: a function's output is not trusted.
"""

from __future__ import annotations

import os
import sys
import threading

# `0`, `off` and `false` hide it.
VARIABLE = "SNOWMELT_PRINTS"

_MAX_LINES = 200
_MAX_WIDTH = 2_000


def enabled(requested: bool | None = None) -> bool:
    """Whether it is shown: as requested, or unless the variable says no."""
    if requested is not None:
        return requested
    return os.environ.get(VARIABLE, "").lower() not in ("0", "off", "false", "no")


class Prints:
    """What the functions of one query, call or map print. Threads may show text at once."""

    def __init__(self, shown: bool, most: int = _MAX_LINES) -> None:
        self._shown = shown
        self._left = most
        self._lock = threading.Lock()

    def show(self, function: str, text: str) -> None:
        """Shows whole lines, until the bound is reached."""
        if not text or not self._shown:
            return
        with self._lock:
            for line in text.splitlines():
                self._line(function, line)

    def _line(self, function: str, line: str) -> None:
        if self._left < 0:
            return
        self._left -= 1
        if self._left < 0:
            _write(f"{function}: … more is not shown\n")
            return
        visible = "".join(char if char.isprintable() or char == "\t" else "·" for char in line)
        _write(f"{function}: {visible[:_MAX_WIDTH]}\n")


class Printed:
    """What a function prints that engines call: the bound is of each time of use."""

    def __init__(self, function: str, requested: bool | None) -> None:
        self._function, self._requested = function, requested
        self.begin()

    def begin(self) -> None:
        """What was shown so far does not count any more."""
        self._prints = Prints(enabled(self._requested))

    def show(self, text: str) -> None:
        """Shows whole lines, until the bound is reached."""
        self._prints.show(self._function, text)


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass  # There is no stderr, or it cannot show the text.
