"""The comparison with DuckDB finds wrong answers, and accepts the differences that are none."""

from decimal import Decimal

import pyarrow as pa
import pytest
from random_tables import write_tables
from reference import Reference

ROWS = "values (1, 'a', 0.5::double), (2, 'b', 1.5), (2, 'c', 1.5), (null, 'd', null)"
QUERY = f"select * from ({ROWS}) as t(k, s, x)"
KEYS, WORDS, DOUBLES = [1, 2, 2, None], ["a", "b", "c", "d"], [0.5, 1.5, 1.5, None]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(write_tables(tmp_path_factory.mktemp("tables")))


def answer(keys: list[int | None], words: list[str], doubles: list[float | None]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "s": words, "x": doubles})


def test_equal_answers(reference: Reference) -> None:
    swapped = answer([None, 2, 2, 1], ["d", "c", "b", "a"], [None, 1.5, 1.5, 0.5])
    rounded = answer(KEYS, WORDS, [0.5, 1.5000000001, 1.5, None])
    assert reference.difference(QUERY, swapped) is None
    assert reference.difference(QUERY, rounded) is None
    assert (
        reference.difference(f"{QUERY} order by k", answer(KEYS, ["a", "c", "b", "d"], DOUBLES))
        is None
    )
    assert (
        reference.difference(f"{QUERY} order by k limit 2", answer([1, 2], ["a", "c"], [0.5, 1.5]))
        is None
    )
    coarse = pa.table({"x": [Decimal("0.333")]})
    assert reference.difference("select 1.0::double / 3", coarse) is None


@pytest.mark.parametrize(
    ("suffix", "keys", "words", "doubles"),
    [
        ("", KEYS[:3], WORDS[:3], DOUBLES[:3]),
        ("", [1, 2, 2, 3], WORDS, DOUBLES),
        ("", [1, 1, 2, None], ["a", "a", "c", "d"], [0.5, 0.5, 1.5, None]),
        ("", KEYS, WORDS, [0.5, 1.5, 1.50001, None]),
        ("", KEYS, WORDS, [0.5, 1.5, 1.5, 0.0]),
        ("", KEYS, ["a", "c", "b", "e"], DOUBLES),
        ("order by k", [2, 1, 2, None], ["b", "a", "c", "d"], [1.5, 0.5, 1.5, None]),
        ("order by k", KEYS, ["a", "b", "b", "d"], DOUBLES),
        ("order by k, s", KEYS, ["a", "c", "b", "d"], DOUBLES),
        ("order by k desc", KEYS, WORDS, DOUBLES),
        ("order by k limit 2", [1, 2], ["a", "x"], [0.5, 1.5]),
        ("order by k limit 3", [1, 2, 2], ["a", "b", "b"], [0.5, 1.5, 1.5]),
    ],
)
def test_wrong_answers(
    reference: Reference,
    suffix: str,
    keys: list[int | None],
    words: list[str],
    doubles: list[float | None],
) -> None:
    assert reference.difference(f"{QUERY} {suffix}", answer(keys, words, doubles)) is not None


def test_types_that_are_not_alike(reference: Reference) -> None:
    words = pa.table({"k": ["1"]})
    assert reference.difference("select 1", words) == "column 0 is string, expected int32"
    truth = pa.table({"k": [True]})
    assert reference.difference("select 1", truth) is not None
