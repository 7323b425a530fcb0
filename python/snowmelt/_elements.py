"""The SQL type of a Python annotation: the type of one value, an `Element`.

Invariant: pyarrow is imported only by `Element.arrow_type`, so that decorating a function is cheap.
An unsupported annotation is refused with a suggestion.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Union

# The default of `Decimal`: all 38 digits that Arrow's 128 bits hold, 10 of them after the point.
DECIMAL_PRECISION, DECIMAL_SCALE = 38, 10

_DEEPEST = 16

_PLAIN: dict[Any, tuple[str, str]] = {
    bool: ("bool", "bool"),
    int: ("int", "int64"),
    float: ("float", "float64"),
    str: ("str", "string"),
    bytes: ("bytes", "binary"),
    decimal.Decimal: ("decimal", f"decimal({DECIMAL_PRECISION}, {DECIMAL_SCALE})"),
    datetime.date: ("date", "date32"),
    datetime.datetime: ("datetime", "timestamp[us]"),
    datetime.time: ("time", "time64[us]"),
    datetime.timedelta: ("timedelta", "duration[us]"),
}

_ALIASES = {
    "float16": "halffloat",
    "float32": "float",
    "float64": "double",
    "date32": "date32[day]",
}

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")

_NUMPY = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
_NUMPY |= {"float32", "float64"}


class UnsupportedAnnotation(Exception):
    """An annotation has no SQL type; the text says why and what to write instead."""


@dataclasses.dataclass(frozen=True)
class Element:
    """The type of one value.

    `kind` is the Python side (`int`, `str`, `list`, `struct`, …), `arrow` the Arrow side: the text
    of a type, or a `pyarrow.DataType` that the user gave. `fields` are the fields of a struct, or
    the one element of a list. `python` constructs the function's argument if it is not a plain
    value (a dataclass, a tuple, a numpy number).
    """

    kind: str
    arrow: Any = None
    nullable: bool = False
    fields: tuple[tuple[str, Element], ...] = ()
    python: Callable[..., Any] | None = None

    def arrow_type(self) -> Any:
        """The `pyarrow.DataType`. Inner fields are always nullable, as in query engines."""
        import pyarrow as pa

        if isinstance(self.arrow, str):
            return arrow_type(self.arrow)
        if self.arrow is not None:
            return self.arrow
        if self.kind == "list":
            return pa.list_(self.fields[0][1].arrow_type())
        return pa.struct([(name, inner.arrow_type()) for name, inner in self.fields])

    def __str__(self) -> str:
        text = self.arrow if isinstance(self.arrow, str) else str(self.arrow_type())
        return f"{text} or null" if self.nullable else text


def arrow_type(text: str) -> Any:
    """A `pyarrow.DataType` from text as in `Annotated[int, "int32"]`."""
    import pyarrow as pa

    try:
        if match := _DECIMAL.fullmatch(text):
            return pa.decimal128(int(match[1]), int(match[2]))
        return pa.type_for_alias(_ALIASES.get(text, text))
    except ValueError as error:
        raise UnsupportedAnnotation(f"{text!r} is not an Arrow type: {error}") from None


def element(annotation: Any, depth: int = 0) -> Element:
    """The element of an annotation. Raises `UnsupportedAnnotation`."""
    if depth > _DEEPEST:
        raise UnsupportedAnnotation("the type contains itself")
    if _is_arrow(annotation):
        return _from_arrow(annotation)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _annotated(annotation, depth)
    if origin is Union or isinstance(annotation, getattr(types, "UnionType", ())):
        return _optional(typing.get_args(annotation), annotation, depth)
    if origin in (list, tuple):
        return _list(annotation, origin, depth)
    return _class(annotation, depth)


def _class(annotation: Any, depth: int) -> Element:
    try:
        if annotation in _PLAIN:
            kind, arrow = _PLAIN[annotation]
            return Element(kind, arrow)
    except TypeError:  # Not hashable, so not a type.
        raise UnsupportedAnnotation(f"{annotation!r} is not a type") from None
    if isinstance(annotation, type):
        if any((b.__module__, b.__name__) == ("numpy", "generic") for b in annotation.__mro__):
            return _from_numpy(annotation)
        if fields := _struct_fields(annotation):
            made = tuple((name, element(hint, depth + 1)) for name, hint in fields.items())
            return Element("struct", fields=made, python=_maker(annotation))
    raise UnsupportedAnnotation(_advice(annotation))


def _optional(members: tuple[Any, ...], annotation: Any, depth: int) -> Element:
    named = [member for member in members if member is not type(None)]
    if len(named) != 1 or len(named) == len(members):
        raise UnsupportedAnnotation(
            f"{_text(annotation)} is several types; a column has one (and `None`)"
        )
    return dataclasses.replace(element(named[0], depth), nullable=True)


def _list(annotation: Any, origin: Any, depth: int) -> Element:
    arguments = typing.get_args(annotation)
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        raise UnsupportedAnnotation(
            f"{_text(annotation)} has a fixed length: write tuple[T, ...] or list[T]"
        )
    item = element(arguments[0], depth + 1)
    return Element("list", fields=(("item", item),), python=tuple if origin is tuple else None)


def _annotated(annotation: Any, depth: int) -> Element:
    base, *extras = typing.get_args(annotation)
    plain = element(base, depth)
    for extra in extras:
        if isinstance(extra, str) or _is_arrow(extra):
            exact = _from_arrow(arrow_type(extra) if isinstance(extra, str) else extra)
            if exact.kind != plain.kind:
                raise UnsupportedAnnotation(f"{extra} does not hold values of {_text(base)}")
            kept = extra if isinstance(extra, str) else exact.arrow
            return dataclasses.replace(plain, arrow=kept, fields=plain.fields or exact.fields)
    return plain


def _from_numpy(annotation: Any) -> Element:
    name = annotation.__name__.rstrip("_")
    if name not in _NUMPY:
        raise UnsupportedAnnotation(f"numpy.{annotation.__name__} has no column type")
    kind = "bool" if name == "bool" else "float" if name.startswith("float") else "int"
    return Element(kind, name, python=annotation)


def _is_arrow(thing: Any) -> bool:
    # By name, to avoid importing pyarrow: a caller with a DataType has imported it.
    names = [(base.__module__, base.__name__) for base in type(thing).__mro__]
    return ("pyarrow.lib", "DataType") in names


def _from_arrow(given: Any) -> Element:
    import pyarrow.types as at

    kinds: list[tuple[Callable[[Any], bool], str]] = [
        (at.is_boolean, "bool"),
        (at.is_integer, "int"),
        (at.is_floating, "float"),
        (lambda t: at.is_string(t) or at.is_large_string(t), "str"),
        (lambda t: at.is_binary(t) or at.is_large_binary(t), "bytes"),
        (at.is_decimal, "decimal"),
        (at.is_date32, "date"),
        (at.is_timestamp, "datetime"),
        (at.is_time, "time"),
        (at.is_duration, "timedelta"),
    ]
    for matches, kind in kinds:
        if matches(given):
            return Element(kind, given)
    if at.is_list(given) or at.is_large_list(given):
        item = dataclasses.replace(_from_arrow(given.value_type), nullable=True)
        return Element("list", given, fields=(("item", item),))
    if at.is_struct(given):
        fields = [(f.name, dataclasses.replace(_from_arrow(f.type), nullable=True)) for f in given]
        return Element("struct", given, fields=tuple(fields))
    raise UnsupportedAnnotation(f"the Arrow type {given} is not supported in functions")


def _struct_fields(annotation: Any) -> dict[str, Any]:
    named = dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation)
    if not named and not (issubclass(annotation, tuple) and hasattr(annotation, "_fields")):
        return {}
    try:
        hints = typing.get_type_hints(annotation, include_extras=True)
    except NameError as error:
        raise UnsupportedAnnotation(
            f"{annotation.__name__} names an unknown type: {error}"
        ) from None
    if dataclasses.is_dataclass(annotation):
        return {field.name: hints[field.name] for field in dataclasses.fields(annotation)}
    return hints


def _maker(annotation: Any) -> Any:
    return None if typing.is_typeddict(annotation) else annotation


def _text(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _advice(annotation: Any) -> str:
    text = _text(annotation)
    module = getattr(annotation, "__module__", "").partition(".")[0]
    if annotation in (list, tuple, list, tuple):
        return f"{text} has no item type: write for example list[float]"
    if annotation is dict or typing.get_origin(annotation) is dict:
        return f"{text} has no declared fields: write a TypedDict or a dataclass"
    if annotation is None or annotation is type(None):
        return "None is not a column type: write for example float | None"
    wrappers = {
        "pandas": "sm.Series",
        "pyarrow": "sm.Array",
        "numpy": "sm.NDArray",
        "polars": "sm.Array",
    }
    if module in wrappers:
        return f"{text} has no value type: write for example {wrappers[module]}[float]"
    return (
        f"{text} has no column type: write bool, int, float, str, bytes, Decimal, date, datetime, "
        "time, timedelta, list[…], a dataclass or a TypedDict"
    )
