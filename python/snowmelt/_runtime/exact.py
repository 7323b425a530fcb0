"""Conversions of what a function returned to its declared type.

Invariant: a conversion keeps every value, up to the digits that the declared type of a number has,
or is refused. The rules are those of values that are returned row by row (`values.py`).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from . import nested

# The most digits of an Arrow decimal: what is rounded has room for one more than it has.
_MAX_DIGITS = 76


def may_become(found: Any, declared: Any) -> bool:
    """Whether a cast keeps the meaning: widths may change, a number never becomes a string, and a
    time without a zone never one with a zone, or the reverse."""
    at = pa.types
    if found.equals(declared) or at.is_null(found):
        return True
    if at.is_dictionary(found):
        return may_become(found.value_type, declared)
    if at.is_floating(declared):
        return bool(at.is_integer(found) or at.is_floating(found))
    if at.is_decimal(declared):
        return bool(at.is_integer(found) or at.is_decimal(found))
    if at.is_integer(declared):
        return bool(at.is_integer(found))
    if at.is_timestamp(declared):
        return at.is_timestamp(found) and (found.tz is None) == (declared.tz is None)
    families = (_is_text, _is_bytes, at.is_date, at.is_time, at.is_duration)
    if any(same(found) and same(declared) for same in families):
        return True
    if nested.is_list(found) and nested.is_list(declared):
        return may_become(found.value_type, declared.value_type)
    if at.is_struct(found) and at.is_struct(declared):
        return [f.name for f in found] == [f.name for f in declared] and all(
            may_become(a.type, b.type) for a, b in zip(found, declared)
        )
    return False


def cast(array: Any, declared: Any) -> Any:
    """The array as the declared type, which it `may_become`. Raises `pyarrow.ArrowException` for a
    value that does not fit."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(declared) and pa.types.is_decimal(array.type):
        array = _rounded(array, declared.scale)
    made = array.cast(declared)
    if _has_narrow_float(declared):
        _check_finite(array, made)
    return made


def written(values: list[Any], declared: Any) -> Any:
    """The array of Python values. pyarrow leaves out digits of times, and makes large numbers
    infinite, without a word. Raises `pyarrow.ArrowException` for a value that does not fit."""
    array, wide = pa.array(values, type=declared), _wide(declared)
    if wide != declared:
        cast(pa.array(values, type=wide), declared)
    return array


def _rounded(array: Any, scale: int) -> Any:
    if array.type.scale <= scale:
        return array
    roomy = array.cast(pa.decimal256(_MAX_DIGITS, array.type.scale))
    return pc.round(roomy, ndigits=scale, round_mode="half_to_even")


def _has_narrow_float(kind: Any) -> bool:
    if pa.types.is_floating(kind):
        return bool(kind.bit_width < 64)
    return any(_has_narrow_float(kind.field(place).type) for place in range(kind.num_fields))


def _check_finite(before: Any, after: Any) -> None:
    """Refuses numbers that a cast has made infinite."""
    at = pa.types
    if at.is_floating(after.type):
        if not at.is_floating(before.type) or before.type.bit_width <= after.type.bit_width:
            return
        infinite = pc.is_inf(after.cast(pa.float64()))
        if pc.any(pc.and_(infinite, pc.is_finite(before.cast(pa.float64())))).as_py():
            raise pa.ArrowInvalid(f"a number is too large for {after.type}")
    elif at.is_struct(after.type):
        for one, other in zip(before.flatten(), after.flatten()):
            _check_finite(one, other)
    elif nested.is_list(after.type) and nested.is_list(before.type):
        _check_finite(before.flatten(), after.flatten())


def _wide(kind: Any) -> Any:
    """The type that holds all digits of Python's values."""
    at = pa.types
    if at.is_floating(kind):
        return pa.float64()
    if getattr(kind, "unit", None) in ("s", "ms"):
        if at.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        return pa.duration("us") if at.is_duration(kind) else pa.time64("us")
    if nested.is_list(kind):
        inner = kind.value_field.with_type(_wide(kind.value_type))
        # The layout is not compared, so any list will do.
        return kind if inner.type == kind.value_type else pa.list_(inner)
    if at.is_struct(kind):
        return pa.struct([field.with_type(_wide(field.type)) for field in kind])
    return kind


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: Any) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )
