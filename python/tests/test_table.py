"""Table functions: what is refused when they are decorated, their rows, and each kind of failure."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pytest
from peer import Instance, Refused, answer

import snowmelt as sm
from snowmelt._runtime import frames, table
from snowmelt._runtime.failure import Failed
from snowmelt._runtime.table import Table
from snowmelt._table import columns_of
from snowmelt._vendor import cloudpickle


class Word(TypedDict):
    word: str
    place: int


class Pair(NamedTuple):
    word: str
    place: int


@dataclasses.dataclass
class Place:
    word: str
    place: int | None


ROW = pa.struct([("word", pa.string()), ("place", pa.int64())])


@sm.table(columns={"word": str, "place": int})
def words(text: str):  # type: ignore[no-untyped-def]
    for place, word in enumerate(text.split()):
        yield word, place


def called(function: Any, *columns: Any) -> Any:
    """The lists of one answer."""
    names = [name for name, _ in function.signature.arguments]
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names)
    return Table(function.function, function.signature)(batch)


def failed(function: Any, *columns: Any) -> dict[str, Any]:
    with pytest.raises(Failed) as raised:
        called(function, *columns)
    return raised.value.message


def test_columns_are_declared_or_those_of_a_class() -> None:
    assert words.signature.kind == "table"
    assert words.signature.returns.arrow_type() == pa.list_(ROW)
    assert repr(words) == "<table words(text: string) -> (word: string, place: int64)>"
    assert list(words("a b")) == [("a", 0), ("b", 1)]

    def by_iterator(text: str) -> Iterator[Word]: ...
    def by_iterable(text: str) -> Iterable[Pair]: ...
    def by_generator(text: str) -> Generator[Place, None, None]: ...
    def by_list(text: str) -> list[Word]: ...
    def by_sequence(text: str) -> Sequence[Word]: ...

    for function in (by_iterator, by_iterable, by_generator, by_list, by_sequence):
        made = sm.table(function)
        assert made.signature.returns.arrow_type() == pa.list_(ROW), function
    assert dict(columns_of(sm.table(by_generator).signature))["place"].nullable


def test_a_wrong_declaration_is_refused() -> None:
    def bare(text: str): ...  # type: ignore[no-untyped-def]
    def of_tuples(text: str) -> Iterator[tuple[str, int]]: ...
    def of_texts(text: str) -> Iterator[str]: ...
    def of_one(text: str) -> Word: ...  # type: ignore[empty-body]
    def of_nulls(text: str) -> Iterator[Word | None]: ...
    def of_batches(text: sm.Series[str]) -> Iterator[Word]: ...

    for function, reason in [
        (bare, "does not declare its columns"),
        (of_tuples, "tuples, whose columns have no names"),
        (of_texts, "have no named columns"),
        (of_one, "does not say which rows it yields"),
        (of_nulls, "rows cannot be None"),
        (of_batches, "takes no batches"),
    ]:
        with pytest.raises(sm.SignatureError, match=reason) as refused:
            sm.table(function)
        assert refused.value.code == "SM-0205"
    for columns, reason in [
        ({}, "declares no columns"),
        ({"a": int, "A": str}, "two columns are named"),
        ({"": int}, "no name"),
        ({3: int}, "is not the name"),
        ({"a": complex}, "column `a`"),
        ({"a": sm.Series[int]}, "type of a batch"),
        ({f"c{n}": int for n in range(257)}, "257 columns"),
    ]:
        with pytest.raises(sm.SignatureError, match=reason):
            sm.table(columns=columns)(bare)
    with pytest.raises(TypeError, match="columns is a mapping"):
        sm.table(columns=["a"])  # type: ignore[call-overload]


def test_each_row_gives_a_list() -> None:
    lists = called(words, ["a b", "", None, "c"])
    assert lists.type == pa.list_(ROW)
    assert lists.to_pylist() == [
        [{"word": "a", "place": 0}, {"word": "b", "place": 1}],
        [],
        None,
        [{"word": "c", "place": 0}],
    ]
    assert called(words, pa.array([], pa.string())).to_pylist() == []
    assert called(words, pa.array([None, None], pa.string())).to_pylist() == [None, None]


def test_rows_have_many_forms() -> None:
    rows = [("a", 0), ["b", 1], {"place": 2, "word": "c"}, Pair("d", 3), Place("e", 4)]
    expected = [{"word": word, "place": place} for place, word in enumerate("abcde")]
    forms = [rows, tuple(rows), iter(rows)]

    @sm.table(columns={"word": str, "place": int})
    def given(n: int):  # type: ignore[no-untyped-def]
        return forms[n]

    assert called(given, [0, 1, 2]).to_pylist() == [expected] * 3


def test_a_row_of_one_column_may_be_its_value() -> None:
    @sm.table(columns={"n": int})
    def single(n: int):  # type: ignore[no-untyped-def]
        return [n, (n + 1,), {"n": n + 2}]

    @sm.table(columns={"n": list[int]})
    def lists(n: int):  # type: ignore[no-untyped-def]
        yield [n]
        yield ([n, n],)

    assert called(single, [1]).to_pylist() == [[{"n": 1}, {"n": 2}, {"n": 3}]]
    assert called(lists, [1]).to_pylist() == [[{"n": [1]}, {"n": [1, 1]}]]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (3, "expected rows to iterate over, got int 3"),
        ("text", "got str 'text'"),
        ({"word": "a"}, "expected rows to iterate over, got dict"),
        (None, "return [] for no rows"),
        ([("a", 0), ("b",)], "row 1 of its output: expected a row of 2 columns (word, place)"),
        ([("a", 0), ("b", 1, 2)], "got 3 values"),
        ([("a", 0), 7], "got int 7"),
        ([("a", 0), None], "got NoneType None"),
        ([("a", 0), ("b", "1")], "row 1 of its output: column `place`: expected int64, got str"),
        ([("a", 0), (None, 1)], "column `word`: expected string, got None"),
        ([{"word": "a", "position": 1}], "with the columns word, position"),
        ([("a", 2**63)], "column `place`: "),
    ],
)
def test_wrong_rows_name_row_and_column(given: Any, reason: str) -> None:
    @sm.table(columns={"word": str, "place": int})
    def wrong(n: int):  # type: ignore[no-untyped-def]
        return given if n == 2 else [("x", n)]

    message = failed(wrong, [0, 1, 2, 3])
    assert message["kind"] == "type" and reason in message["exception"], message
    assert message["row"] == 2 and message["input"] == "n = 2"
    # Rows for which it is not called count too.
    assert failed(wrong, [0, None, None, 2])["row"] == 3


def test_an_exception_says_how_far_it_came() -> None:
    @sm.table(columns={"n": int})
    def breaks(n: int):  # type: ignore[no-untyped-def]
        yield from range(n)
        if n == 3:
            raise ValueError("three")

    message = failed(breaks, [1, 2, 3])
    assert message["kind"] == "raised" and message["exception"] == "ValueError: three"
    assert message["row"] == 2 and message["input"] == "n = 3, after 3 rows of output"
    assert (message["failed"], message["calls"]) == (1, 3)


def test_an_answer_ends_when_it_has_enough_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ANSWER_BYTES", 1_000)

    @sm.table(columns={"n": int})
    def many(n: int):  # type: ignore[no-untyped-def]
        return range(n)

    whole = [100, None, 300, None, 0, 400, None, 5, None]
    answered: list[Any] = []
    sizes = []
    while len(answered) < len(whole):
        lists = called(many, pa.array(whole[len(answered) :], pa.int64()))
        answered += lists.to_pylist()
        sizes.append(len(lists))
    assert len(sizes) > 1 and all(sizes)
    assert [None if one is None else len(one) for one in answered] == whole


def test_a_row_that_gives_too_much_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_BYTES", 1 << 20)
    ended = []

    @sm.table(columns={"n": int, "text": str})
    def endless(n: int):  # type: ignore[no-untyped-def]
        try:
            while True:
                yield n, "text"
        finally:
            ended.append(n)

    message = failed(endless, [7])
    assert message["kind"] == "size" and "more than 1 MiB for one row" in message["exception"]
    assert message["row"] == 0 and message["input"] == "n = 7"
    assert ended == [7]


def test_a_function_is_pickled_with_its_signature() -> None:
    again = pickle.loads(cloudpickle.dumps(words))
    assert again.signature == words.signature and repr(again) == repr(words)
    assert list(again("x")) == [("x", 0)]


HEAD = """
import snowmelt as sm

@sm.table(columns={"word": str, "size": int})
def parts(text: str, times: int):
    for word in text.split():
        print("part", word)
        yield word * times, len(word)
"""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path)
    yield instance
    instance.stop()


def test_an_instance_answers_with_lists(instance: Instance) -> None:
    code = instance.source(HEAD)
    batch = pa.record_batch({"text": ["a bc", "", None], "times": [2, 1, 1]})
    lists = instance.udf(code, "parts", batch).to_pylist()
    assert lists == [[{"word": "aa", "size": 1}, {"word": "bcbc", "size": 2}], [], None]
    with pytest.raises(Refused) as refused:
        instance.udf(code, "parts", pa.record_batch({"text": ["a"], "times": ["x"]}))
    assert refused.value.failure["kind"] == "type"


def test_an_instance_describes_it(instance: Instance) -> None:
    connection = instance.open("describe", instance.source(HEAD))
    assert b'"kind": "table"' in bytes(answer(connection, frames.RETURN))
