"""Lists and structs in numpy's form, with every integer exact.

numpy has no null integers, and Arrow's own conversion turns all integers of a nested column into
floats if one of them is null: 2**60 + 1 becomes 2**60. Invariant: no number changes; integers with
a null among them become an array of objects, with None for the null.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def is_nested(kind: Any) -> bool:
    """Whether values of an Arrow type have child values."""
    return is_list(kind) or bool(pa.types.is_struct(kind))


def is_list(kind: Any) -> bool:
    """Whether it is a list of any width."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def as_numpy(column: Any) -> Any:
    """A `numpy.ndarray` of the values: arrays for lists, dicts for structs, None for nulls."""
    if is_list(column.type):
        return _lists(column)
    if pa.types.is_struct(column.type):
        return _structs(column)
    if column.null_count and pa.types.is_integer(column.type):
        return _objects(column.to_pylist())
    return column.to_numpy(zero_copy_only=False)


def _lists(column: Any) -> Any:
    # Without the values that lie beneath null lists.
    values = as_numpy(column.flatten())
    lists: list[Any] = []
    start = 0
    for length in column.value_lengths().to_pylist():
        lists.append(None if length is None else values[start : start + length].copy())
        start += length or 0
    return _objects(lists)


def _structs(column: Any) -> Any:
    names = [field.name for field in column.type]
    parts = [_part(child) for child in column.flatten()]
    valid = column.is_valid().to_pylist()
    rows = [dict(zip(names, row)) for row in zip(*parts)] if parts else [{} for _ in valid]
    return _objects([row if there else None for row, there in zip(rows, valid)])


def _part(child: Any) -> list[Any]:
    return list(as_numpy(child)) if is_nested(child.type) else list(child.to_pylist())


def _objects(values: list[Any]) -> Any:
    import numpy as np

    # Not `np.array`, which makes a matrix of lists of equal length.
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array
