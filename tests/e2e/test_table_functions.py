"""Table functions of the user in real sandboxes: rows in FROM, failures, limits, and engines."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt, short_folder
from suites import warm_server

import snowmelt as sm

ROWS = 20_000

FUNCTIONS = """
from collections.abc import Iterator
from typing import NamedTuple, TypedDict

class Word(TypedDict):
    word: str
    place: int

@sm.table
def words(text: str) -> Iterator[Word]:
    for place, word in enumerate(text.split()):
        yield {"word": word, "place": place}

@sm.table(columns={"n": int})
def count_up(n: int | None):
    return range(n or 0)

@sm.table(columns={"letter": str, "place": int})
def letters(word: str):
    yield from zip(word, range(len(word)))

@sm.table(columns={"n": int, "text": str})
def wrong_at_seven(n: int):
    yield n, "first"
    if n == 7:
        yield n, 7

@sm.table(columns={"n": int})
def raises_at_seven(n: int):
    yield from range(min(n, 8))
    if n == 7:
        raise ValueError("seven")

@sm.table(columns={"n": int})
def narrow(n: int):
    yield n, n

@sm.table(columns={"n": int})
def nothing(n: int):
    return None

@sm.table(columns={"text": str})
def endless(n: int):
    while True:
        yield "x" * 1000

@sm.table(columns={"n": int}, timeout="1s")
def stuck(n: int):
    import time
    while True:
        time.sleep(0.1)
        yield n

@sm.table(columns={"text": str})
def large(n: int):
    for _ in range(n):
        yield "x" * 100_000

@sm.udf
def shout(text: str) -> str:
    return text.upper()
"""


def text_of(row: int) -> str | None:
    return None if row % 9 == 4 else " ".join(f"w{row % 5}" for _ in range(row % 4))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for part in range(3):
        numbers = range(part, ROWS, 3)
        columns = {"id": list(numbers), "text": [text_of(n) for n in numbers]}
        pq.write_table(pa.table(columns), folder / f"{part}.parquet", row_group_size=2_000)
    return folder


@pytest.fixture
def file(udf_file: Callable[[str], Path]) -> Path:
    return udf_file(FUNCTIONS)


def expected() -> list[tuple[int, str, int]]:
    """The rows that `words` gives for each row of the table."""
    split = [(row, (text_of(row) or "").split()) for row in range(ROWS)]
    return [(row, word, place) for row, words in split for place, word in enumerate(words)]


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_of_a_table_become_rows_of_the_function(
    snowmelt: Snowmelt, table: Path, file: Path, workers: int
) -> None:
    given = ["--udf", file, "--table", f"t={table}", "--workers", workers]
    for joined in ["t, words(t.text) w", "t cross join lateral words(text) as w(word, place)"]:
        query = f"select t.id, w.word, w.place from {joined} order by 1, 3"
        assert values(snowmelt.rows(query, *given)) == expected()
    counted = "select word, count(*) c, max(place) p from t, words(text) group by 1 order by 1"
    places: dict[str, list[int]] = {}
    for _, word, place in expected():
        places.setdefault(word, []).append(place)
    assert values(snowmelt.rows(counted, *given)) == [
        (word, len(found), max(found)) for word, found in sorted(places.items())
    ]


def test_a_left_join_keeps_rows_without_output(snowmelt: Snowmelt, table: Path, file: Path) -> None:
    given = ["--udf", file, "--table", f"t={table}", "--workers", 2]
    query = "select t.id, w.word from t left join lateral words(t.text) w on true order by 1"
    found = values(snowmelt.rows(query, *given))
    without = [row for row in range(ROWS) if not (text_of(row) or "").split()]
    assert [row for row, word in found if word is None] == without
    assert len(found) == len(without) + len(expected())


def test_constants_subqueries_and_other_functions_work(
    snowmelt: Snowmelt, table: Path, file: Path
) -> None:
    given = ["--udf", file, "--table", f"t={table}"]
    for query, rows in [
        ("select * from words('a b a')", [("a", 0), ("b", 1), ("a", 2)]),
        ("select * from words('')", []),
        ("select * from words(null)", []),
        ("select * from count_up(null)", []),
        ("select count(*) n from table(count_up(5)) as c where n > 2", [(2,)]),
        ("select shout(word) s from words('a b') order by 1 desc", [("B",), ("A",)]),
        (
            "select w.word, l.letter from words('ab c') w, letters(w.word) l"
            " order by w.place, l.place",
            [("ab", "a"), ("ab", "b"), ("c", "c")],
        ),
        ("select id from t where id in (select n from count_up(3)) order by 1", [(0,), (1,), (2,)]),
        (
            "with w as (select * from words('x y')) select a.word, b.word b from w a, w b "
            "where a.place < b.place",
            [("x", "y")],
        ),
    ]:
        assert values(snowmelt.rows(query, *given)) == rows, query


def test_wrong_rows_name_row_and_column(snowmelt: Snowmelt, table: Path, file: Path) -> None:
    given = ["--udf", file, "--table", f"t={table}", "--workers", 1]
    for name, code, words in [
        ("wrong_at_seven", "SM-0202", ["row 1 of its output", "column `text`", "got int 7"]),
        ("narrow", "SM-0202", ["row 0 of its output", "1 column (n)", "got 2 values"]),
        ("nothing", "SM-0202", ["expected rows to iterate over, got NoneType"]),
    ]:
        failed = snowmelt.sql(f"select count(*) from t, {name}(t.id)", *given)
        report = failed.failed_with(code, f"`{name}`", *words)
        assert "n = " in report["input"] and "of its batch" in report["input"]
    failed = snowmelt.sql("select count(*) from t, raises_at_seven(t.id)", *given)
    report = failed.failed_with("SM-0201", "raises_at_seven")
    line = 3 + FUNCTIONS.splitlines().index('        raise ValueError("seven")')
    assert report["location"]["line"] == line
    assert "n = 7, after 7 rows of output" in report["input"]


def test_output_without_end_is_stopped(snowmelt: Snowmelt, file: Path) -> None:
    failed = snowmelt.sql("select count(*) from endless(3)", "--udf", file)
    report = failed.failed_with("SM-0225", "`endless` gave too much", "more than 64 MiB")
    assert "n = 3" in report["input"]
    snowmelt.sql("select count(*) from stuck(3)", "--udf", file).failed_with("SM-0212", "stuck")


def test_output_that_is_larger_than_the_memory_is_streamed(snowmelt: Snowmelt, file: Path) -> None:
    """Half a gigabyte of rows, of which an instance and a worker have a part at a time."""
    query = "select count(*) c, sum(length(l.text)) s from count_up(50) u, large(u.n + 75) l"
    count = sum(n + 75 for n in range(50))
    rows = snowmelt.rows(query, "--udf", file, "--memory", "512MiB")
    assert values(rows) == [(count, count * 100_000)]


def test_calls_elsewhere_than_in_from_are_refused(
    snowmelt: Snowmelt, table: Path, file: Path
) -> None:
    given = ["--udf", file, "--table", f"t={table}"]
    for query, code, word in [
        ("select words(text) from t", "SM-0107", "called in FROM"),
        ("select id from t where words(text) is null", "SM-0107", "called in FROM"),
        ("select * from t, words(t.text) as w(a, b, c)", "SM-0107", "its alias names 3"),
        ("select * from t, words(t.id) w", "SM-0103", "`words` takes"),
        ("select * from t, words(t.txt) w", "SM-0102", "txt"),
        ("select * from t left join lateral words(t.text) w on w.place > 0", "SM-0107", "ON TRUE"),
    ]:
        snowmelt.sql(query, *given).failed_with(code, word)


def test_a_registered_function_is_called_by_name(alone: Snowmelt, table: Path, file: Path) -> None:
    alone.run("up").succeeded()
    added = alone.run("udf", "add", file, "--test", "words('a b')").succeeded()
    text = "table words(text VARCHAR) TABLE (word VARCHAR, place BIGINT)"
    assert f"{text} version 1" in added.out.splitlines()
    assert "words('a b') gives 2 rows" in added.err
    assert text in alone.run("udf", "ls").succeeded().out
    assert text in alone.run("udf", "show", "words").succeeded().out
    tested = alone.run("udf", "test", "words", "'a b'").succeeded().out
    assert "word" in tested and "place" in tested and "b" in tested
    assert alone.run("udf", "test", "words", "''").succeeded().out == "no rows\n"
    alone.run("udf", "add", file, "--test", "raises_at_seven(7)").failed_with("SM-0201", "seven")
    rows = alone.rows("select count(*) c from t, words(text)", "--table", f"t={table}")
    assert values(rows) == [(len(expected()),)]
    alone.run("down").succeeded()


@sm.table(columns={"word": str, "place": int})
def split(text: str) -> Iterator[Any]:
    for place, word in enumerate(text.split()):
        yield word, place


@sm.table(columns={"text": str})
def repeated(n: int) -> Iterator[Any]:
    for _ in range(n):
        yield "x" * 100_000


def test_other_engines_get_lists_of_rows(table: Path) -> None:
    import datafusion
    import duckdb
    import pandas as pd
    import polars as pl

    from snowmelt.engines import datafusion as in_datafusion
    from snowmelt.engines import duckdb as in_duckdb
    from snowmelt.engines import pandas as in_pandas
    from snowmelt.engines import polars as in_polars
    from snowmelt.engines import remote

    given = pa.table({"id": [1, 2, 3], "text": ["a b", "", "c"]})
    wanted = [(1, "a", 0), (1, "b", 1), (3, "c", 0)]
    with short_folder() as folder, warm_server(folder):
        query = "select id, word, place from t, split(text) order by 1, 3"
        assert sm.sql(query, t=given).rows() == wanted

        connection = duckdb.connect()
        in_duckdb.register(connection, split)
        connection.register("t", given)
        unnested = "select id, unnest(split(text), max_depth := 2) from t"
        assert sorted(connection.sql(unnested).fetchall()) == wanted

        frame = pl.from_arrow(given)
        assert isinstance(frame, pl.DataFrame)
        exploded = frame.select("id", r=in_polars.expression(split, "text")).explode("r")
        assert exploded.unnest("r").drop_nulls("word").rows() == wanted

        series = given.to_pandas()
        lists = series.assign(r=in_pandas.call(split, series["text"])).explode("r").dropna()
        made = pd.DataFrame(lists["r"].tolist()).assign(id=lists["id"].tolist())
        assert list(made[["id", "word", "place"]].itertuples(index=False, name=None)) == wanted

        context = datafusion.SessionContext()
        in_datafusion.register(context, split)
        context.from_arrow(given, "t")
        unnested = (
            "select id, r['word'] word, r['place'] place from "
            "(select id, unnest(split(text)) r from t) where r is not null order by 1, 3"
        )
        found = context.sql(unnested).to_arrow_table().to_pylist()
        assert values(found) == wanted

        # Larger than an answer: the rows that one leaves out are sent again.
        lists = remote(repeated)(pa.array([75] * 10))
        assert pc.list_value_length(lists).to_pylist() == [75] * 10
        with pytest.raises(sm.FunctionError) as refused:
            remote(repeated)(pa.array([1, 1000]))
        assert refused.value.code == "SM-0225"
        with pytest.raises(sm.Error, match="cannot pass the table function"):
            remote(repeated, transport="parquet")
        assert split.register() == 1
        assert sm.sql("select word from split('x y')", udfs=[]).rows() == [("x",), ("y",)]
        assert remote("split")(pa.array(["q"])).to_pylist() == [[{"word": "q", "place": 0}]]
