"""Decodes the plain data that a sandbox sent (encoded by `_runtime/plain.py`).

Boundary: the text is assumed to be hostile. Invariant: decoding calls only the readers defined
here, one for each kind; unknown kinds are refused.
"""

from __future__ import annotations

import base64
import collections
import datetime
import decimal
import fractions
import pathlib
import uuid
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any

from ._runtime.plain import FACTORIES

Decode = Callable[..., Any]


def decode(sent: Any) -> Any:
    """The value that `plain.encode` encoded. Invalid input raises any exception."""
    if not isinstance(sent, list):
        if isinstance(sent, dict):
            raise ValueError("an object has no kind")
        return sent
    kind, *parts = sent
    reader = _READERS.get(kind)
    if reader is None:
        from . import _plain_arrays

        reader = _plain_arrays.READERS[kind]
    return reader(*parts)


def items(sent: Iterable[Any]) -> list[Any]:
    """Decodes each of the values."""
    return [decode(one) for one in sent]


def data(text: str) -> bytes:
    """Bytes that were sent as text."""
    return base64.b64decode(text, validate=True)


def _pairs(sent: list[list[Any]]) -> list[tuple[Any, Any]]:
    return [(decode(key), decode(value)) for key, value in sent]


def _counter(sent: list[list[Any]]) -> Any:
    counter: Any = collections.Counter()
    for key, value in _pairs(sent):
        counter[key] = value
    return counter


def _defaultdict(factory: int, sent: list[list[Any]]) -> Any:
    # The factory is an index into a fixed list.
    return collections.defaultdict(FACTORIES[factory], _pairs(sent))


def _datetime(text: str, fold: int, zone: int | str | None) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=_zone(zone), fold=fold)


def _time(text: str, fold: int, zone: int | str | None) -> datetime.time:
    return datetime.time.fromisoformat(text).replace(tzinfo=_zone(zone), fold=fold)


def _zone(zone: int | str | None) -> datetime.tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        return zoneinfo.ZoneInfo(zone)
    return datetime.timezone(datetime.timedelta(seconds=zone))


_READERS: dict[str, Decode] = {
    "scalars": lambda sent: list(sent),
    "list": items,
    "tuple": lambda sent: tuple(items(sent)),
    "set": lambda sent: set(items(sent)),
    "frozenset": lambda sent: frozenset(items(sent)),
    "dict": lambda sent: {key: decode(value) for key, value in sent.items()},
    "pairs": lambda sent: dict(_pairs(sent)),
    "ordereddict": lambda sent: collections.OrderedDict(_pairs(sent)),
    "counter": _counter,
    "defaultdict": _defaultdict,
    "deque": lambda sent, most: collections.deque(items(sent), most),
    "bytes": data,
    "bytearray": lambda text: bytearray(data(text)),
    "complex": lambda real, imaginary: complex(real, imaginary),
    "range": lambda start, stop, step: range(start, stop, step),
    "date": lambda text: datetime.date.fromisoformat(text),
    "datetime": _datetime,
    "time": _time,
    "timedelta": lambda days, seconds, us: datetime.timedelta(days, seconds, us),
    "decimal": lambda text: decimal.Decimal(text),
    "fraction": lambda over, under: fractions.Fraction(over, under),
    "uuid": lambda text: uuid.UUID(text),
    "path": lambda text: pathlib.Path(text),
    "purepath": lambda text: pathlib.PurePosixPath(text),
}
