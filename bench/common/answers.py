"""Compares the answers of two engines.

Engines differ in the types of the same answer (a sum of decimals is a decimal of another
precision, an average a float), so values are compared, not types: numbers within a relative
tolerance, or to the last digit of a decimal that the other engine does not have; everything else
exactly. Column names are not compared, their order is.
"""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

TOLERANCE = 1e-9

Row = tuple[Any, ...]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    return float(value) if isinstance(value, (int, float, Decimal)) else value


def _sort_key(row: Row) -> tuple[Any, ...]:
    """Exact values first, then rounded numbers: equal rows sort alike in both answers."""
    exact = [(0, "") if v is None else (1, str(v)) for v in row if not isinstance(v, float)]
    numbers = [float(f"{v:.6g}") for v in row if isinstance(v, float)]
    return (exact, numbers)


def rows(table: pa.Table) -> list[Row]:
    """The rows as plain Python values."""
    columns = [[_plain(v) for v in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _last_digit(ours: pa.Field, theirs: pa.Field) -> float:
    """The tolerance for the coarser type of a column: an average as decimal(19, 6) is truncated
    at the sixth digit, while another engine returns a float."""
    decimals = [f.type.scale for f in (ours, theirs) if pa.types.is_decimal(f.type)]
    return TOLERANCE if ours.type == theirs.type or not decimals else 10.0 ** -min(decimals)


def _same_value(left: Any, right: Any, last_digit: float) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=last_digit)
    return bool(left == right)


def difference(ours: pa.Table, theirs: pa.Table, *, ordered: bool) -> str | None:
    """None if both answers are equal, otherwise one line that describes the difference."""
    if ours.num_columns != theirs.num_columns:
        return f"{ours.num_columns} columns, expected {theirs.num_columns}"
    left, right = rows(ours), rows(theirs)
    if len(left) != len(right):
        return f"{len(left)} rows, expected {len(right)}"
    if not ordered:
        left, right = sorted(left, key=_sort_key), sorted(right, key=_sort_key)
    digits = list(map(_last_digit, ours.schema, theirs.schema))
    for number, (a, b) in enumerate(zip(left, right, strict=True)):
        for name, x, y, digit in zip(ours.column_names, a, b, digits, strict=True):
            if not _same_value(x, y, digit):
                return f"row {number}, column {name}: {x!r}, expected {y!r}"
    return None
