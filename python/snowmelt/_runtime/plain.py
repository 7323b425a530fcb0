"""Writes plain data as JSON text, for results that the client reads without executing anything.

`snowmelt/_plain.py` reads it. Invariant: what is written here is read back equal and of the same
type; other types are refused by name, never converted into something similar. No library is
imported for a value: if a value of it exists, it is imported already. Imports here cost every
function.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

# Deeper data would exceed the recursion limit of its reader.
MAX_LEVELS = 200

_SCALARS = frozenset({type(None), bool, int, float, str})

Encode = Callable[[Any, int], Any]


class NotPlain(Exception):
    """A value is not plain data; the text names its type."""


def dumps(value: Any) -> str:
    """The JSON text of a value. Raises `NotPlain`."""
    try:
        return json.dumps(encode(value))
    except (ValueError, RecursionError) as error:
        # For example an integer of thousands of digits.
        raise NotPlain(str(error)) from None


def encode(value: Any, level: int = 0) -> Any:
    """The value as JSON values: itself, or a list that begins with the name of its kind."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if level > MAX_LEVELS:
        raise NotPlain(f"it is nested more than {MAX_LEVELS} levels deep, or contains itself")
    known = _BUILT_IN.get(kind) or _BY_NAME.get((kind.__module__, kind.__qualname__))
    if known is not None:
        return known(value, level + 1)
    if kind.__module__.partition(".")[0] in ("numpy", "pandas", "pyarrow", "polars"):
        from . import plain_arrays

        return plain_arrays.encode(value, level + 1)
    raise not_plain(value)


def not_plain(value: Any) -> NotPlain:
    """The refusal of a value by its type."""
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return NotPlain(f"{module}{kind.__qualname__} is not plain data")


def _list(values: Any, level: int) -> Any:
    if set(map(type, values)) <= _SCALARS:
        return ["scalars", list(values)]
    return ["list", items(values, level)]


def items(values: Any, level: int) -> list[Any]:
    """Each of the values."""
    return [encode(value, level) for value in values]


def _of_items(name: str) -> Encode:
    return lambda values, level: [name, items(values, level)]


def _dict(value: Any, level: int) -> Any:
    if set(map(type, value)) <= {str}:
        return ["dict", {key: encode(item, level) for key, item in value.items()}]
    return ["pairs", _pairs(value, level)]


def _pairs(value: Any, level: int) -> list[Any]:
    return [[encode(key, level), encode(item, level)] for key, item in value.items()]


def _defaultdict(value: Any, level: int) -> Any:
    factory = value.default_factory
    if factory not in FACTORIES:
        raise NotPlain(f"a defaultdict with the factory {factory!r} is not plain data")
    return ["defaultdict", FACTORIES.index(factory), _pairs(value, level)]


FACTORIES = (None, int, float, bool, str, list, dict, set, tuple)


def _bytes(name: str) -> Encode:
    return lambda value, _: [name, base64.b64encode(value).decode()]


def _moment(name: str) -> Encode:
    def write(value: Any, _: int) -> Any:
        return [name, value.replace(tzinfo=None).isoformat(), value.fold, _zone(value.tzinfo)]

    return write


def _zone(zone: Any) -> int | str | None:
    """Seconds from UTC, or the name of a time zone."""
    if zone is None:
        return None
    kind = type(zone).__module__, type(zone).__qualname__
    if kind == ("zoneinfo", "ZoneInfo") and zone.key:
        return str(zone.key)
    offset = zone.utcoffset(None) if kind == ("datetime", "timezone") else None
    if offset is None or offset.microseconds:
        raise not_plain(zone)
    return int(offset.total_seconds())


def _span(value: Any, _: int) -> Any:
    return ["timedelta", value.days, value.seconds, value.microseconds]


def _text(name: str) -> Encode:
    return lambda value, _: [name, str(value)]


_BUILT_IN: dict[type, Encode] = {
    list: _list,
    tuple: _of_items("tuple"),
    set: _of_items("set"),
    frozenset: _of_items("frozenset"),
    dict: _dict,
    bytes: _bytes("bytes"),
    bytearray: _bytes("bytearray"),
    complex: lambda value, _: ["complex", value.real, value.imag],
    range: lambda value, _: ["range", value.start, value.stop, value.step],
}

_BY_NAME: dict[tuple[str, str], Encode] = {
    ("collections", "OrderedDict"): lambda value, level: ["ordereddict", _pairs(value, level)],
    ("collections", "Counter"): lambda value, level: ["counter", _pairs(value, level)],
    ("collections", "defaultdict"): _defaultdict,
    ("collections", "deque"): lambda value, level: ["deque", items(value, level), value.maxlen],
    ("datetime", "date"): lambda value, _: ["date", value.isoformat()],
    ("datetime", "datetime"): _moment("datetime"),
    ("datetime", "time"): _moment("time"),
    ("datetime", "timedelta"): _span,
    ("decimal", "Decimal"): _text("decimal"),
    ("fractions", "Fraction"): lambda value, _: ["fraction", value.numerator, value.denominator],
    ("uuid", "UUID"): _text("uuid"),
    ("pathlib", "PosixPath"): _text("path"),
    ("pathlib", "PurePosixPath"): _text("purepath"),
    # Their modules since Python 3.13.
    ("pathlib._local", "PosixPath"): _text("path"),
    ("pathlib._local", "PurePosixPath"): _text("purepath"),
}
