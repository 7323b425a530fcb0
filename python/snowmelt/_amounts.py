"""Parses amounts that users write: memory, CPU share, time.

Accepts the same syntax as `crates/types/src/resources.rs`. Invariant: an invalid amount is refused
here, with an example of a valid one, before anything is sent.
"""

from __future__ import annotations

import contextlib
import datetime
import operator
import re
from typing import Any, Union

from .errors import make

Memory = Union[str, int]
Duration = Union[str, int, float, datetime.timedelta]
Processor = Union[str, int, float]

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")

_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_BYTES |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_BYTES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0}


_MOST = 2**32 - 1


def memory_bytes(amount: Memory) -> int:
    """Bytes of `"512MiB"`, `"2GB"` or a count of bytes."""
    number, unit = _split(amount, "memory", "512MiB, 2GiB or a count of bytes")
    factor = _BYTES.get(unit.lower())
    if factor is None:
        raise _refused(amount, "memory", "512MiB, 2GiB or a count of bytes")
    return int(number * factor)


def cpu_millis(amount: Processor) -> int:
    """Thousandths of a core of `"500m"`, `1` or `1.5`."""
    example = "500m, 1 or 1.5"
    number, unit = _split(amount, "cpu", example)
    millis = {"m": number, "": number * 1000}.get(unit)
    if millis is None or not 10 <= millis <= 1_024_000:
        raise _refused(amount, "cpu", example)
    return int(millis)


def milliseconds(amount: Duration) -> int:
    """Milliseconds of `"250ms"`, `"30s"`, `"5m"`, a count of seconds, or a timedelta."""
    if isinstance(amount, datetime.timedelta):
        amount = amount.total_seconds()
    example = "250ms, 30s, 5m, 1h or a count of seconds"
    number, unit = _split(amount, "time", example)
    if unit not in _SECONDS:
        raise _refused(amount, "time", example)
    return int(number * _SECONDS[unit] * 1000)


def count(name: str, given: Any, least: int = 1) -> int:
    """A whole number in the range that the platform accepts."""
    number = -1
    with contextlib.suppress(TypeError):
        # Accepts integers of numpy as well.
        number = -1 if isinstance(given, bool) else operator.index(given)
    if not least <= number <= _MOST:
        raise make("SM-0110", f"{name}={given!r} is not a whole number from {least} to {_MOST:,}")
    return number


def _split(amount: object, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(str(amount)) if not isinstance(amount, bool) else None
    if match is None:
        raise _refused(amount, what, example)
    return float(match[1]), match[2]


def _refused(amount: object, what: str, example: str) -> Exception:
    return make("SM-0110", f"{amount!r} is not an amount of {what}: write for example {example}")
