"""Columns to Python values and back, for functions that are called row by row.

Invariant: a value is checked here before pyarrow sees it, because pyarrow silently turns 1.5 into 1
and a string into a list of letters.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .._elements import Element
from .failure import EXCEPTION_CHARACTERS, Failed

Shape = Callable[[Any], Any]

_NO_NULL_HINT = "the annotation says that it never returns None: write `-> {} | None` if it may"


class WrongValue(Exception):
    """A value is not of the declared type; the text says what it is."""


class WrongRow(Exception):
    """The value of one row is not of the declared type."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row, self.reason = row, reason


def read_column(column: Any, element: Element) -> list[Any]:
    """The Python values of a `pyarrow.Array`, as the function gets them."""
    values = as_declared(column, element.arrow_type()).to_pylist()
    shape = _shape(element)
    return values if shape is None else [None if v is None else shape(v) for v in values]


def as_declared(column: Any, declared: Any) -> Any:
    """The column with its declared Arrow type: engines may send another width or string form."""
    return column if column.type.equals(declared) else column.cast(declared)


def _shape(element: Element) -> Shape | None:
    """Makes the value that the function gets; None where Arrow's value is used unchanged."""
    if element.kind == "list":
        return _shape_list(element)
    if element.kind == "struct":
        return _shape_struct(element)
    return element.python


def _shape_list(element: Element) -> Shape | None:
    inner, make = _shape(element.fields[0][1]), element.python or list
    if inner is None:
        return element.python
    return lambda values: make(None if v is None else inner(v) for v in values)


def _shape_struct(element: Element) -> Shape | None:
    shapes = [(name, shape) for name, e in element.fields if (shape := _shape(e)) is not None]
    make = element.python

    def shaped(value: dict[str, Any]) -> Any:
        for name, shape in shapes:
            if value[name] is not None:
                value[name] = shape(value[name])
        return value if make is None else make(**value)

    return shaped if shapes or make is not None else None


def write_column(values: list[Any], element: Element, may_be_null: Callable[[int], bool]) -> Any:
    """A `pyarrow.Array` of the element's type; `may_be_null` is true for rows that were not called.

    Raises `WrongRow`.
    """
    import pyarrow as pa

    from . import exact

    checked = _checked(values, element, may_be_null)
    declared = element.arrow_type()
    try:
        return exact.written(checked, declared)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        for row, value in enumerate(checked):
            _try_one(row, value, declared)
        raise


def _try_one(row: int, value: Any, declared: Any) -> None:
    import pyarrow as pa

    from . import exact

    try:
        exact.written([value], declared)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        reason = f"{described(value)} does not fit {declared}: {error}"
        raise WrongRow(row, reason[:EXCEPTION_CHARACTERS]) from None


# Types whose values need no check of their own.
_EXACT: dict[str, frozenset[type]] = {
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "str": frozenset({str}),
    "bytes": frozenset({bytes}),
    "date": frozenset({datetime.date}),
    "timedelta": frozenset({datetime.timedelta}),
}


def _checked(values: list[Any], element: Element, may_be_null: Callable[[int], bool]) -> list[Any]:
    kinds = set(map(type, values))
    if kinds <= _EXACT.get(element.kind, frozenset()):
        return values
    checked: list[Any] = []
    for row, value in enumerate(values):
        if value is None and may_be_null(row):
            checked.append(None)
            continue
        try:
            checked.append(coerce(value, element))
        except WrongValue as wrong:
            raise WrongRow(row, str(wrong)) from None
    return checked


def coerce(value: Any, element: Element) -> Any:
    """The value as pyarrow accepts it for this element. Raises `WrongValue`."""
    if value is None:
        if element.nullable:
            return None
        raise WrongValue(f"expected {element}, got None")
    # numpy's numbers, without importing numpy.
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    return _COERCE[element.kind](value, element)


def _wrong(value: Any, element: Element, more: str = "") -> WrongValue:
    return WrongValue(f"expected {element}, got {described(value)}{more}")


def described(value: Any) -> str:
    """Type and text of a value, shortened."""
    try:
        text = repr(value)
    except Exception:  # A user's __repr__ may raise.
        text = ""
    return f"{type(value).__name__} {text[:100]}".rstrip()


def _instance(*kinds: type, but: tuple[type, ...] = ()) -> Callable[[Any, Element], Any]:
    def check(value: Any, element: Element) -> Any:
        if isinstance(value, kinds) and not isinstance(value, but):
            return value
        raise _wrong(value, element)

    return check


def _int(value: Any, element: Element) -> int:
    if isinstance(value, bool):
        raise _wrong(value, element)
    try:
        return operator.index(value)
    except TypeError:
        raise _wrong(value, element) from None


def _float(value: Any, element: Element) -> float:
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool) and _is_exact(value):
        return float(value)
    raise _wrong(value, element)


def _is_exact(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False


def _bytes(value: Any, element: Element) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _wrong(value, element)


# More digits than any column holds: rounding happens once, at the column's scale.
_EXACT_CONTEXT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_EVEN)


def _decimal(value: Any, element: Element) -> decimal.Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        value = decimal.Decimal(value)
    if not isinstance(value, decimal.Decimal):
        raise _wrong(
            value, element, ": write Decimal(str(value))" if isinstance(value, float) else ""
        )
    if not value.is_finite():
        raise _wrong(value, element)
    try:
        return value.quantize(
            decimal.Decimal(1).scaleb(-element.arrow_type().scale), context=_EXACT_CONTEXT
        )
    except decimal.InvalidOperation:
        raise _wrong(value, element) from None


def _datetime(value: Any, element: Element) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        raise _wrong(value, element)
    zoned = element.arrow != "timestamp[us]" and element.arrow_type().tz is not None
    if zoned == (value.tzinfo is not None):
        return _without_nanoseconds(value, element)  # type: ignore[no-any-return]
    raise _wrong(value, element, " with a time zone" if value.tzinfo else " without a time zone")


def _time(value: Any, element: Element) -> datetime.time:
    if not isinstance(value, datetime.time):
        raise _wrong(value, element)
    if value.tzinfo is not None:
        raise _wrong(value, element, " with a time zone")
    return value


def _timedelta(value: Any, element: Element) -> datetime.timedelta:
    if not isinstance(value, datetime.timedelta):
        raise _wrong(value, element)
    return _without_nanoseconds(value, element)  # type: ignore[no-any-return]


def _without_nanoseconds(value: Any, element: Element) -> Any:
    """The value, which may be one of pandas: those have digits that Python's do not have."""
    more = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    if more and getattr(element.arrow_type(), "unit", None) != "ns":
        raise _wrong(value, element, " with nanoseconds")
    return value


def _list(value: Any, element: Element) -> list[Any]:
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise _wrong(value, element)
    inner = element.fields[0][1]
    return [coerce(item, inner) for item in value]


def _struct(value: Any, element: Element) -> dict[str, Any]:
    found = as_mapping(value)
    if found is None:
        raise _wrong(value, element)
    names = [name for name, _ in element.fields]
    if missing := [name for name in names if name not in found]:
        raise _wrong(value, element, f", without {', '.join(missing)}")
    if unknown := [str(name) for name in found if name not in names]:
        raise _wrong(value, element, f", with {', '.join(unknown)} in addition to its fields")
    return {name: coerce(found[name], inner) for name, inner in element.fields}


def as_mapping(value: Any) -> Mapping[Any, Any] | None:
    """The fields of a mapping, a NamedTuple or a dataclass, by name; `None` for other values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


_COERCE: dict[str, Callable[[Any, Element], Any]] = {
    "bool": _instance(bool),
    "int": _int,
    "float": _float,
    "str": _instance(str),
    "bytes": _bytes,
    "decimal": _decimal,
    "date": _instance(datetime.date, but=(datetime.datetime,)),
    "datetime": _datetime,
    "time": _time,
    "timedelta": _timedelta,
    "list": _list,
    "struct": _struct,
}


def wrong_row(wrong: WrongRow, function: str, element: Element, **more: Any) -> Failed:
    """The failure of kind `type` for a row."""
    hint = None
    if wrong.reason == f"expected {element}, got None":
        hint = _NO_NULL_HINT.format(element.kind)
    return Failed("type", wrong.reason, function=function, row=wrong.row, hint=hint, **more)
