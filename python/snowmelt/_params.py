"""Values of the parameters of a statement, `?`, `$1` and `:name`, in the form of the wire.

A value travels with its type, as text where JSON would round it, and is never part of the SQL.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Union

from .errors import Error, make

Params = Union[Sequence[Any], Mapping[str, Any]]

_BIGINT = range(-(2**63), 2**63)
_MAX_DIGITS = 38


def to_wire(params: Any) -> list[Any] | dict[str, Any]:
    """The wire form of all values: a list by place, or a mapping by name. Raises `Error`."""
    if isinstance(params, Mapping):
        return {_name(name): _value(value) for name, value in params.items()}
    if isinstance(params, (str, bytes)) or not isinstance(params, Sequence):
        hint = "write params=[value] for ? and $1, or params={'name': value} for :name"
        message = f"params= is a list or a dictionary of values, not a {type(params).__name__}"
        raise make("SM-0110", message, hint=hint)
    return [_value(value) for value in params]


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise make("SM-0110", f"params= has the name {name!r}, which is not a string")
    return name


def _value(value: Any) -> Any:
    """A Python value, or a scalar of NumPy or pandas."""
    if value is None or isinstance(value, (bool, str)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return _whole(int(value))
    if isinstance(value, float):
        return _typed("double", repr(float(value)))
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _typed("blob", bytes(value).hex())
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    return _time(value)


def _time(value: Any) -> Any:
    if type(value).__name__ in ("NaTType", "NAType"):  # of pandas
        return None
    if isinstance(value, dt.datetime):
        kind = "timestamp" if value.tzinfo is None else "timestamptz"
        return _typed(kind, value.isoformat(sep=" "))
    if isinstance(value, dt.date):
        return _typed("date", value.isoformat())
    if isinstance(value, dt.time) and value.tzinfo is None:
        return _typed("time", value.isoformat())
    if isinstance(value, dt.timedelta):
        parts = [f"{value.days} days", f"{value.seconds} seconds"]
        # One of pandas has nanoseconds too.
        parts += [
            f"{value.microseconds} microseconds",
            f"{getattr(value, 'nanoseconds', 0)} nanoseconds",
        ]
        return _typed("interval", " ".join(parts))
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """A scalar of NumPy, whose times may have units that Python's lack."""
    module = type(value).__module__.partition(".")[0]
    if module == "numpy" and type(value).__name__ == "datetime64":
        return _typed("timestamp", str(value).replace("T", " "))
    if module == "numpy" and getattr(value, "ndim", None) == 0:
        plain = value.item()
        if type(plain) is not type(value):
            return _value(plain)
    raise _unknown(value)


def _whole(value: int) -> Any:
    if value in _BIGINT:
        return value
    if abs(value) < 10**_MAX_DIGITS:
        return _typed("decimal", str(value))
    raise make("SM-0110", f"params= has a whole number of more than {_MAX_DIGITS} digits")


def _decimal(value: decimal.Decimal) -> Any:
    text = format(value, "f")
    if not value.is_finite() or sum(c.isdigit() for c in text) > _MAX_DIGITS:
        message = f"params= has the decimal {value}, which has no {_MAX_DIGITS} digits or fewer"
        raise make("SM-0110", message, hint="pass it as a float")
    return _typed("decimal", text)


def _typed(data_type: str, text: str) -> dict[str, str]:
    return {"type": data_type, "value": text}


def _unknown(value: Any) -> Error:
    hint = "pass None, a bool, int, float, Decimal, str, bytes, date, time, datetime or timedelta"
    return make("SM-0110", f"params= has a {type(value).__name__}", hint=hint)
