"""Decimals on their way into a float parameter, as `execute/src/udf/float_arguments.rs` has it.

Invariant: a decimal is kept if the float has all of its digits, so 0.1 is, and 2**53 + 1 is not.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

# Digits that every value of a type has, by its width in bits.
_DIGITS = {16: 3, 32: 6, 64: 15}


def floats(array: Any, wanted: Any) -> Any:
    """Decimals as floats. Raises `pyarrow.ArrowInvalid` if one has no exact form."""
    import pyarrow as pa

    if _are_short(array, wanted):
        return array.cast(wanted)
    # Arrow's division is not exact for so many digits.
    values = [None if value is None else float(value) for value in array.to_pylist()]
    made = pa.array(values, pa.float64()).cast(wanted)
    _compare(array, made)
    return made


def check(before: Any, after: Any) -> None:
    """Refuses decimals in lists and structs that became floats and lost digits."""
    from pyarrow import types

    if types.is_dictionary(before.type):
        check(before.dictionary_decode(), after)
    elif types.is_decimal(before.type) and types.is_floating(after.type):
        if not _are_short(before, after.type):
            _compare(before, after)
    elif types.is_struct(after.type) and types.is_struct(before.type):
        for one, other in zip(before.flatten(), after.flatten()):
            check(one, other)
    elif _is_list(after.type) and _is_list(before.type):
        check(before.flatten(), after.flatten())


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _are_short(array: Any, wanted: Any) -> bool:
    import pyarrow.compute as pc

    most = Decimal(10) ** (_DIGITS[wanted.bit_width] - array.type.scale)
    # A larger scale than this is divided by a number that is not exact.
    if array.type.scale > 22:
        return False
    extremes = pc.min_max(array).as_py()
    return all(value is None or abs(value) < most for value in extremes.values())


def _compare(before: Any, after: Any) -> None:
    import pyarrow as pa

    for decimal, made in zip(before.to_pylist(), after.to_pylist()):
        if decimal is not None and not _has_all_digits(made, decimal, after.type):
            raise pa.ArrowInvalid(f"{decimal} has no exact form")


def _has_all_digits(made: float, decimal: Decimal, kind: Any) -> bool:
    if made in (float("inf"), float("-inf")):
        return False
    if Decimal(made) == decimal:
        return True
    if kind.bit_width == 64:
        return made == float(decimal) and Decimal(repr(made)) == decimal
    # The float is shown with the digits that it has.
    return Decimal(f"{made:.{_DIGITS[kind.bit_width]}g}") == decimal
