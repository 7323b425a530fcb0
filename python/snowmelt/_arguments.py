"""Columns of an engine as the arguments of a function: widened to its types, never narrowed.

Invariant: a conversion keeps every value. What could change or lose one is refused before the
function is called.
"""

from __future__ import annotations

from typing import Any

from . import _exact
from .errors import Error, make


def batch(name: str, columns: list[Any], schema: Any, rows: int | None = None) -> Any:
    """The record batch for a call: columns of equal length, of the types of the schema.

    Raises `Error` if the number of columns or a type does not fit.
    """
    import pyarrow as pa

    if len(columns) != len(schema):
        wanted, found = len(schema), len(columns)
        raise make("SM-0103", f"`{name}` takes {wanted} arguments, but the engine gives {found}")
    arrays = [as_array(column) for column in columns]
    _check_columns(name, arrays)
    found_types = [array.type for array in arrays]
    if arrays and found_types == schema.types:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    widened = []
    for array, field in zip(arrays, schema):
        try:
            fitting = widen(array, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            text = f"a value of `{field.name}` is not a {field.type}: {error}"
            raise make("SM-0109", f"`{name}` cannot be called: {text}") from None
        if fitting is None:
            raise _does_not_fit(name, schema.types, found_types)
        widened.append(fitting)
    if not widened:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * (rows or 0), pa.struct([])))
    return pa.RecordBatch.from_arrays(widened, schema=schema)


def _check_columns(name: str, arrays: list[Any]) -> None:
    import pyarrow as pa

    for place, array in enumerate(arrays, 1):
        if not isinstance(array, pa.Array):
            raise not_a_column(name, place, array, "arrays of pyarrow")
    lengths = sorted({len(array) for array in arrays})
    if len(lengths) > 1:
        text = " and ".join(f"{length:,}" for length in lengths)
        raise make("SM-0103", f"`{name}` is called with columns of {text} rows")


def not_a_column(name: str, place: int, given: Any, wanted: str) -> Error:
    """The error for an argument that is no column."""
    kind = type(given)
    text = f"argument {place} of `{name}` is a {kind.__module__}.{kind.__qualname__}"
    hint = "repeat a constant for each row, and give the columns of a frame one by one"
    return make("SM-0103", f"{text}, and its arguments are {wanted}", hint=hint)


def as_array(column: Any) -> Any:
    """One array. Engines give columns in chunks."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def widen(array: Any, wanted: Any) -> Any:
    """The array with the wanted type, or None if the types do not fit.

    Raises `pyarrow.ArrowInvalid` if a value has no exact form in the wanted type.
    """
    import pyarrow as pa

    if array.type == wanted:
        return array
    if pa.types.is_dictionary(array.type):
        return widen(array.dictionary_decode(), wanted)
    if not _fits(array.type, wanted):
        return None
    if pa.types.is_decimal(array.type) and pa.types.is_floating(wanted):
        return _exact.floats(array, wanted)
    made = array.cast(wanted)
    # Arrow refuses integers that a float does not have, and rounds decimals.
    _exact.check(array, made)
    return made


def _fits(found: Any, wanted: Any) -> bool:
    """The rules of Snowmelt's own SQL (`crates/execute/src/udf/coercion.rs`)."""
    from pyarrow import types

    if found == wanted or types.is_null(found):
        return True
    if _layout(found) and _layout(found) == _layout(wanted):
        return True
    if types.is_integer(found) and types.is_integer(wanted):
        return _is_wider_integer(found, wanted)
    if types.is_floating(wanted):
        is_narrower = types.is_floating(found) and wanted.bit_width >= found.bit_width
        return bool(is_narrower or types.is_integer(found) or types.is_decimal(found))
    if types.is_decimal(wanted):
        return bool(types.is_integer(found) or types.is_decimal(found))
    if types.is_timestamp(wanted):
        is_instant = types.is_timestamp(found) and (found.tz is None) == (wanted.tz is None)
        return is_instant or (types.is_date32(found) and wanted.tz is None)
    if types.is_time(wanted) or types.is_duration(wanted):
        kind = types.is_time if types.is_time(wanted) else types.is_duration
        return bool(kind(found))
    return _nested_fits(found, wanted)


def _is_wider_integer(found: Any, wanted: Any) -> bool:
    if _is_signed(found) == _is_signed(wanted):
        return bool(wanted.bit_width >= found.bit_width)
    return _is_signed(wanted) and bool(wanted.bit_width > found.bit_width)


def _is_signed(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_signed_integer(kind))


def _nested_fits(found: Any, wanted: Any) -> bool:
    from pyarrow import types

    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    if any(is_list(found) for is_list in lists) and any(is_list(wanted) for is_list in lists):
        return _fits(found.value_type, wanted.value_type)
    if types.is_struct(found) and types.is_struct(wanted):
        names = [field.name for field in found], [field.name for field in wanted]
        return names[0] == names[1] and all(
            _fits(one.type, other.type) for one, other in zip(found, wanted)
        )
    return False


def _layout(kind: Any) -> str | None:
    """Types with equal values in several layouts."""
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "binary"
    return None


def _does_not_fit(name: str, wanted: list[Any], found: list[Any]) -> Error:
    def text(types: list[Any]) -> str:
        return ", ".join(map(str, types))

    return make(
        "SM-0103",
        f"`{name}` takes ({text(wanted)}), but the engine gives ({text(found)})",
        hint="cast the arguments: a conversion that can lose values is never made silently",
    )
