"""DuckDB's answer to a query, and the difference of another engine's answer from it.

The comparison is as strict as the two engines allow:

- Integers, decimals, strings, dates, times and booleans are equal exactly.
- A float equals within a relative tolerance of 1e-9, because sums have no fixed order.
- Where one engine has a decimal and the other a float or a decimal with more digits (averages and
  quotients), the values differ by at most one unit of the last digit that both have.
- Names and types of columns are not compared, except that a string is not a number, and so on.

The rows are compared as a list if the query has an ORDER BY. If it is not a total order, rows with
equal keys may change places, and LIMIT may take any of them. Then the keys are equal in order, and
the rows are among those that the query has without its LIMIT.
"""

import datetime
import json
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

TOLERANCE = 1e-9
# For floats near zero, which are the rest of a subtraction.
NEAR_ZERO = 1e-12

Row = tuple[Any, ...]
Same = Callable[[Any, Any], bool]

# DuckDB with the rules of DataFusion where its own differ.
SETTINGS = {
    "threads": "1",
    "default_null_order": "'nulls_last_on_asc_first_on_desc'",
    "integer_division": "true",
    "TimeZone": "'UTC'",
}


@dataclass(frozen=True)
class Expected:
    """An answer of DuckDB, with what decides which other answers are right as well."""

    table: pa.Table
    # The places of the columns that begin ORDER BY; None without ORDER BY.
    keys: list[int] | None
    limited: bool
    # The same query without LIMIT and OFFSET.
    unlimited: str


class Reference:
    """DuckDB over folders of Parquet files. It remembers its answers; any thread may ask."""

    def __init__(self, tables: dict[str, Path]) -> None:
        self._connection = duckdb.connect()
        for name, value in SETTINGS.items():
            self._connection.execute(f"set {name} = {value}")
        for name, folder in tables.items():
            files = f"{folder}/*.parquet"
            self._connection.execute(f"create view {name} as select * from '{files}'")
        self._lock = threading.Lock()
        self._answers: dict[str, Expected | duckdb.Error] = {}

    def expected(self, sql: str) -> Expected:
        """DuckDB's answer. Raises `duckdb.Error`."""
        with self._lock:
            if sql not in self._answers:
                try:
                    self._answers[sql] = self._ask(sql)
                except duckdb.Error as error:
                    self._answers[sql] = error
            answer = self._answers[sql]
        if isinstance(answer, duckdb.Error):
            raise answer
        return answer

    def rows(self, sql: str) -> list[Row]:
        """The rows of a query."""
        with self._lock:
            return rows_of(self._connection.sql(sql).to_arrow_table())

    def difference(self, sql: str, ours: pa.Table) -> str | None:
        """None if `ours` is a right answer, otherwise what is wrong with it."""
        expected = self.expected(sql)
        theirs = expected.table
        if ours.num_columns != theirs.num_columns:
            return f"{ours.num_columns} columns, expected {theirs.num_columns}"
        columns = [_column(*fields) for fields in zip(ours.schema, theirs.schema, strict=True)]
        if None in columns:
            number = columns.index(None)
            types = f"{ours.schema[number].type}, expected {theirs.schema[number].type}"
            return f"column {number} is {types}"
        if ours.num_rows != theirs.num_rows:
            return f"{ours.num_rows} rows, expected {theirs.num_rows}"
        same = [column for column in columns if column is not None]
        if expected.keys is not None:
            return self._ordered(expected, rows_of(ours), same)
        return among(rows_of(ours), rows_of(theirs), same)

    def _ordered(self, expected: Expected, ours: list[Row], same: list[Same]) -> str | None:
        theirs = rows_of(expected.table)
        first = ordered(ours, theirs, same)
        if first is None or not expected.keys:
            return first
        columns = [same[key] for key in expected.keys]
        ours_by_key, theirs_by_key = (
            [tuple(row[key] for key in expected.keys) for row in rows] for rows in (ours, theirs)
        )
        if wrong := ordered(ours_by_key, theirs_by_key, columns):
            return f"in the order of ORDER BY: {wrong}"
        if not expected.limited:
            return among(ours, theirs, same)
        return among(ours, self.rows(expected.unlimited), same)

    def _ask(self, sql: str) -> Expected:
        table = self._connection.sql(sql).to_arrow_table()
        tree = self._tree(sql)
        modifiers = tree["statements"][0]["node"]["modifiers"]
        orders = [m for m in modifiers if m["type"] == "ORDER_MODIFIER"]
        keys = _keys(orders[0]["orders"], table.column_names) if orders else None
        kept = [
            m for m in modifiers if m["type"] not in ("LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER")
        ]
        tree["statements"][0]["node"]["modifiers"] = kept
        text = self._one("select json_deserialize_sql($1::json)", json.dumps(tree))
        return Expected(table, keys, len(kept) < len(modifiers), text)

    def _tree(self, sql: str) -> Any:
        """The statement as DuckDB's parser reads it."""
        tree = json.loads(self._one("select json_serialize_sql($1)", sql))
        if tree["error"]:
            raise ValueError(f"{tree['error_message']}: {sql}")
        return tree

    def _one(self, sql: str, parameter: str) -> str:
        # All rows: DuckDB refuses to go on while an answer has rows that were not read.
        ((value,),) = self._connection.execute(sql, [parameter]).fetchall()
        return str(value)


def _keys(orders: list[dict[str, Any]], names: list[str]) -> list[int]:
    """The columns of the answer that begin ORDER BY, up to the first key that is not one."""
    found: list[int] = []
    for order in orders:
        expression = order["expression"]
        if expression["class"] == "CONSTANT":
            found.append(int(expression["literal"]["text"]) - 1)
        elif expression["class"] == "COLUMN_REF" and expression["column_names"][-1] in names:
            found.append(names.index(expression["column_names"][-1]))
        else:
            break
    return found


def rows_of(table: pa.Table) -> list[Row]:
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _plain(value: Any) -> Any:
    """A date and the timestamp at its midnight are equal, as is a list to its tuple."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((key, _plain(one)) for key, one in value.items())
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return datetime.datetime(value.year, value.month, value.day)
    return value


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "time"
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return "string" if any(is_string(kind) for is_string in strings) else str(kind)


def _column(ours: pa.Field, theirs: pa.Field) -> Same | None:
    """How the values of a column are compared; None if the types cannot be equal."""
    kinds = (ours.type, theirs.type)
    if any(pa.types.is_null(kind) for kind in kinds):
        # A column without a type has nulls only, which any other type may have.
        return _equal
    if pa.types.is_nested(ours.type) and pa.types.is_nested(theirs.type):
        return _equal
    if _kind(ours.type) != _kind(theirs.type):
        return None
    scales = [kind.scale for kind in kinds if pa.types.is_decimal(kind)]
    if any(pa.types.is_floating(kind) for kind in kinds):
        return _close(10.0 ** -min(scales) if scales else NEAR_ZERO)
    if len(set(scales)) == 2 and min(scales) > 0:
        return _nearly(Decimal(1).scaleb(-min(scales)))
    return _equal


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right)


def _close(last_digit: float) -> Same:
    def same(left: Any, right: Any) -> bool:
        if left is None or right is None:
            return left is right
        a, b = float(left), float(right)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=last_digit)

    return same


def _nearly(unit: Decimal) -> Same:
    def same(left: Any, right: Any) -> bool:
        if left is None or right is None:
            return left is right
        return bool(abs(left - right) <= unit)

    return same


def ordered(ours: list[Row], theirs: list[Row], same: list[Same]) -> str | None:
    """The first difference of two lists of equal length."""
    for number, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        if not _same_row(left, right, same):
            return f"row {number} is {left!r}, expected {right!r}"
    return None


def _same_row(left: Row, right: Row, same: list[Same]) -> bool:
    return all(equal(a, b) for equal, a, b in zip(same, left, right, strict=True))


def among(ours: list[Row], theirs: list[Row], same: list[Same]) -> str | None:
    """None if each row of `ours` has its own equal row of `theirs`: if they have as many rows,
    the multisets are equal."""
    exact = [number for number, equal in enumerate(same) if equal is _equal]
    if len(exact) == len(same):
        left = Counter(ours) - Counter(theirs)
        right = Counter(theirs) - Counter(ours)
        return _listed(left.elements(), right.elements()) if left else None
    places: dict[Row, list[Row]] = defaultdict(list)
    for row in theirs:
        places[tuple(row[number] for number in exact)].append(row)
    for row in sorted(ours, key=_sort_key):
        candidates = places[tuple(row[number] for number in exact)]
        found = next((c for c in candidates if _same_row(row, c, same)), None)
        if found is None:
            return _listed([row], candidates)
        candidates.remove(found)
    return None


def _sort_key(row: Row) -> list[tuple[bool, str]]:
    return [(value is None, str(value)) for value in row]


def _listed(rows: Iterable[Row], instead: Iterable[Row]) -> str:
    """The first rows of both sides."""
    first = [sorted(some, key=_sort_key)[:5] for some in (rows, instead)]
    return f"wrong rows: {first[0]!r}, expected: {first[1]!r}"
