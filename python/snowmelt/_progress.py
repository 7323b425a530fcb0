"""A progress line on stderr for a query, a map or a burst.

Invariant: nothing is shown in the first 300 ms, and nothing at all if stderr is neither a terminal
nor a notebook, unless the caller requests it.
"""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Any

_DELAY_SECONDS = 0.3
_REDRAW_SECONDS = 0.1
_PLAIN_SECONDS = 1.0


def enabled(requested: bool | None) -> bool:
    """Whether to show progress: as requested, by default on a terminal and in a notebook."""
    if requested is not None:
        return requested
    return bool(sys.stderr and sys.stderr.isatty()) or _in_notebook()


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return running is not None and type(running).__name__ == "ZMQInteractiveShell"


class Line:
    """A line that is redrawn, or one new line per second if redrawing is not possible."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._redraws = shown and (_in_notebook() or bool(sys.stderr.isatty()))
        self._every = _REDRAW_SECONDS if self._redraws else _PLAIN_SECONDS
        self._next = time.monotonic() + _DELAY_SECONDS
        self._drawn = 0

    def show(self, text: str) -> None:
        """Shows the text, unless the next update is not due yet."""
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        if self._redraws:
            # A line that wraps cannot be redrawn. The last column stays free: some terminals wrap
            # when it is written.
            columns = _columns()
            text = text if columns is None else cut(text, columns - 1)
            self._write("\r" + text.ljust(self._drawn))
            self._drawn = len(text)
        else:
            self._write(text + "\n")
            self._drawn = 1

    def note(self, text: str) -> None:
        """Shows a line that stays."""
        if self._shown:
            self.clear()
            self._write(text + "\n")

    def end(self, text: str) -> None:
        """Shows the last line, if anything was shown before."""
        if self._drawn:
            self.clear()
            self._write(text + "\n")
        self._shown = False

    def clear(self) -> None:
        """Removes the drawn line."""
        if self._redraws and self._drawn:
            self._write("\r" + " " * self._drawn + "\r")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._shown = False


def _columns() -> int | None:
    """The width of the terminal; a notebook has none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (AttributeError, OSError, ValueError):
        return None


def cut(text: str, columns: int) -> str:
    """The text, shortened to so many columns."""
    return text if len(text) <= columns else text[: max(columns - 1, 0)] + "…"


_PHASES = {"packages": "resolving packages", "plan": "planning", "start": "starting functions"}


def query_text(event: dict[str, Any]) -> str:
    """One line for a `Phase` or `Progress` event of a query."""
    if event["event"] == "phase":
        return _PHASES.get(event["phase"], str(event["phase"]))
    total = size(event["bytes_total"])
    parts = [
        f"{event['running']} running",
        f"{event['done']} of {event['tasks']} done ({event['cold']} cold, {event['warm']} warm)",
        f"{event['rows']:,} rows, {size(event['bytes'])} of {total} read",
    ]
    if event.get("udf_rows"):
        parts.append(f"{event['udf_rows']:,} rows to functions")
    return " · ".join(parts)


def burst_text(status: dict[str, Any]) -> str:
    """One line for a burst, as the API describes it."""
    functions = _counted(status["functions"], "function")
    if room := status.get("waits_for"):
        needed, free = size(room["needed"]), size(room["free"])
        hosts = _counted(room["hosts"], "host")
        return f"burst of {functions} waits for room: {needed} needed, {free} free on {hosts}"
    if status["state"] == "running":
        return f"{status['ended']:,} of {functions} ended"
    return f"burst of {functions} starts"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def summary(profile: dict[str, Any]) -> str:
    """The last line of a query."""
    totals = profile.get("totals", {})
    parts = [
        f"{profile.get('rows', 0):,} rows in {profile.get('wall_us', 0) / 1e6:.2f} s",
        f"{totals.get('function_seconds', 0.0):.1f} function-seconds",
        f"{totals.get('cold', 0)} cold starts",
        f"peak {size(totals.get('peak_memory', 0))}",
        f"cost {dollars(profile.get('cost', {}).get('functions', {}).get('total', 0.0))}",
        str(profile.get("query", "")),
    ]
    return " · ".join(parts)


def dollars(amount: float) -> str:
    """An amount of US dollars with two digits that count: `$0.000012`, `$1.20`."""
    if amount <= 0:
        return "$0"
    digits = min(max(1 - math.floor(math.log10(amount)), 2), 12)
    return f"${amount:.{digits}f}"


def size(count: float) -> str:
    """A byte count as text: `12.5 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
