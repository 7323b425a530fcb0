"""The types of `docs/reference/udf-conformance.md`: what a function declares and is given."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Optional

import pyarrow as pa

import snowmelt as sm

INSTANT = datetime.datetime(2026, 3, 29, 1, 30, 0, 123456)
DAYS = 86_400


@dataclass(frozen=True)
class Case:
    """A row of the table: a function of one parameter that returns its argument."""

    label: str
    # What the function declares; what is not supported is refused when it is declared.
    declared: Any
    # What the engine has: values with nulls.
    given: pa.Array

    @property
    def column(self) -> pa.ChunkedArray:
        """Pieces of the values whose offset is zero and is not, and one without rows."""
        array = self.given
        return pa.chunked_array([array, array.slice(1, 3), array.slice(0, 0), array.slice(2)])

    def expected(self) -> pa.ChunkedArray:
        """The column with the type that is declared."""
        column = self.column
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_interval(column.type) or column.type == self.declared:
            return column
        return column.cast(self.declared)

    def function(self, batch: str, body: Callable[[Any], Any]) -> Any:
        """The function with `@sm.udf`. Raises `sm.SignatureError`."""
        # A `DataType` has no `|`.
        nullable: Any = Optional[self.declared]  # noqa: UP045
        return sm.udf(name="same", batch=batch, args=[nullable], returns=nullable)(body)


def same(x: Any) -> Any:
    return x


def _case(declared: pa.DataType, *values: Any) -> Case:
    return Case(str(declared), declared, pa.array([None, *values, None, *values], declared))


def _integers(kind: pa.DataType) -> Case:
    bits = kind.bit_width
    if pa.types.is_signed_integer(kind):
        return _case(kind, -(1 << bits - 1), 0, (1 << bits - 1) - 1)
    return _case(kind, 0, 1, (1 << bits) - 1)


def _times() -> list[Case]:
    """Dates, times, instants and durations."""
    dates = [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
    whole, before = INSTANT.replace(microsecond=0), datetime.datetime(1901, 12, 13)
    found = [
        _case(pa.date32(), *dates),
        _case(pa.date64(), *dates),
        _case(pa.time32("s"), datetime.time(23, 59, 59)),
        _case(pa.time32("ms"), datetime.time(23, 59, 59, 999000)),
        _case(pa.time64("us"), datetime.time(23, 59, 59, 999999)),
        Case("time64[ns]", pa.time64("ns"), pa.array([None, 1, DAYS * 10**9 - 1], pa.time64("ns"))),
        _case(pa.timestamp("s"), whole, before),
        _case(pa.timestamp("ms"), whole, before),
        _case(pa.timestamp("us"), INSTANT, before, datetime.datetime(9999, 12, 31, 23, 59, 59)),
    ]
    instants = [None, 1, 1_774_747_800_123_456_789, None, -1]
    ns = pa.timestamp("ns")
    found.append(Case(str(ns), ns, pa.array(instants, pa.int64()).cast(ns)))
    for zone in ("UTC", "Europe/Berlin"):
        kind = pa.timestamp("us", zone)
        # Both instants have the same clock time in Berlin, an hour apart.
        pair = [1_761_436_800_000_000, 1_761_440_400_000_000]
        found.append(
            Case(str(kind), kind, pa.array([None, *pair, None, -1], pa.int64()).cast(kind))
        )
    for unit in ("s", "ms", "us", "ns"):
        kind = pa.duration(unit)
        found.append(Case(str(kind), kind, pa.array([None, 1, -1, None, DAYS], kind)))
    interval = pa.month_day_nano_interval()
    found.append(_case(interval, pa.MonthDayNano([1, 2, 3])))
    return found


def _nested() -> list[Case]:
    struct = pa.struct([("a", pa.int64()), ("b", pa.string())])
    # More than a double holds exactly.
    large = (1 << 53) + 1
    values = [{"a": large, "b": "x"}, {"a": None, "b": "ä"}]
    kinds: list[Case] = [
        _case(pa.list_(pa.int64()), [large, None, 3], [], [-1]),
        _case(pa.large_list(pa.int64()), [large, None, 3], []),
        _case(pa.list_(pa.int64(), 2), [1, 2], [3, None]),
        _case(pa.list_(pa.list_(pa.string())), [["x", None], [], None], []),
        _case(struct, *values),
        _case(pa.list_(struct), values, []),
        _case(pa.map_(pa.string(), pa.int64()), [("x", 1)], []),
    ]
    labels = ["list<int64>", "large_list<int64>", "fixed_size_list<int64>[2]"]
    labels += ["list<list<string>>", "struct", "list<struct>", "map<string, int64>"]
    return [
        Case(label, case.declared, case.given) for label, case in zip(labels, kinds, strict=True)
    ]


def _others() -> list[Case]:
    """What an engine gives a function that declares another type."""
    words = pa.array([None, "x", "ä", None, "x"])
    numbers = pa.array([None, 0, 7, None, 3], pa.uint32())
    days = pa.array([None, 0, -1, None, 20_000], pa.date32())
    maps = pa.array([None, [("x", 1)], []], pa.map_(pa.string(), pa.int64()))
    months = pa.array([None, pa.MonthDayNano([0, 0, 1000])], pa.month_day_nano_interval())
    entries = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))
    return [
        Case("dictionary for string", pa.string(), words.dictionary_encode()),
        Case("string_view for string", pa.string(), words.cast(pa.string_view())),
        Case("null for string", pa.string(), pa.nulls(4)),
        Case("uint32 for int64", pa.int64(), numbers),
        Case("uint64 for int64", pa.int64(), numbers.cast(pa.uint64())),
        Case("double for int64", pa.int64(), numbers.cast(pa.float64())),
        Case("int64 for double", pa.float64(), numbers.cast(pa.int64())),
        Case("int64 for string", pa.string(), numbers.cast(pa.int64())),
        Case("date32 for timestamp[us]", pa.timestamp("us"), days),
        Case("map for list<struct>", entries, maps),
        Case("interval for duration[us]", pa.duration("us"), months),
    ]


CASES: list[Case] = [
    _case(pa.bool_(), True, False),
    *(_integers(kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(_integers(kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    *(_case(kind, 0.5, -0.0, float("inf")) for kind in (pa.float16(), pa.float32(), pa.float64())),
    _case(pa.decimal128(5, 2), Decimal("-999.99"), Decimal("0.01")),
    _case(pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
    _case(pa.decimal256(60, 3), Decimal("1" * 57 + ".125")),
    _case(pa.string(), "", "ä" * 100, "a\0b"),
    _case(pa.large_string(), "", "x"),
    _case(pa.binary(), b"", b"\0\xff"),
    _case(pa.large_binary(), b"", b"\0\xff"),
    _case(pa.binary(2), b"\0\xff"),
    *_times(),
    *_nested(),
    *_others(),
]
