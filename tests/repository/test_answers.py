"""Tests of the comparison of answers that demo, benchmarks and end-to-end tests use."""

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from common.answers import difference


def table(*rows: tuple[Any, ...]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(columns, names=[f"c{number}" for number in range(len(columns))])


ROWS = [("a", 1, 1.5), ("b", 2, None), (None, 3, 2.5)]


def test_the_order_of_rows_is_ignored_without_order_by() -> None:
    assert difference(table(*ROWS), table(*reversed(ROWS)), ordered=False) is None


def test_the_order_of_rows_is_compared_with_order_by() -> None:
    assert difference(table(*ROWS), table(*reversed(ROWS)), ordered=True) is not None


def test_different_types_of_equal_values_are_equal() -> None:
    ours = table(("x", Decimal("0.10"), 3))
    assert difference(ours, table(("x", 0.1, Decimal(3))), ordered=True) is None


def test_values_are_compared_at_the_scale_of_a_decimal() -> None:
    ours = table((Decimal("25.522005"),))
    assert difference(ours, table((25.522005853,)), ordered=True) is None
    assert difference(ours, table((25.522007,)), ordered=True) is not None
    assert difference(ours, table((Decimal("25.522006"),)), ordered=True) is not None


def test_rounding_differences_of_floats_are_ignored() -> None:
    assert difference(table((0.1 + 0.2,)), table((0.3,)), ordered=False) is None


@pytest.mark.parametrize(
    "other",
    [
        [("a", 1, 1.5), ("b", 2, None)],
        [("a", 1, 1.5), ("b", 2, 0.0), (None, 3, 2.5)],
        [("a", 1, 1.5000001), ("b", 2, None), (None, 3, 2.5)],
        [("a", 1, 1.5), ("b", 2, None), ("", 3, 2.5)],
        [("a", 1, 1.5), ("a", 1, 1.5), (None, 3, 2.5)],
        [("a", 1), ("b", 2), (None, 3)],
    ],
)
def test_a_different_answer_is_detected(other: list[tuple[Any, ...]]) -> None:
    assert difference(table(*other), table(*ROWS), ordered=False) is not None
