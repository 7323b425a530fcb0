"""Aggregate functions of the user in real sandboxes, compared with what plain SQL computes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt, short_folder
from suites import warm_server

import snowmelt as sm

ROWS = 120_000

FUNCTIONS = """
@sm.aggregate(args=[float, float], returns=float | None, batch="numpy", packages=["numpy"])
class weighted_mean:
    def __init__(self):
        self.total, self.weight = 0.0, 0.0
    def update(self, values, weights):
        self.total += float((values * weights).sum())
        self.weight += float(weights.sum())
    def merge(self, other):
        self.total += other.total
        self.weight += other.weight
    def finish(self):
        return self.total / self.weight if self.weight else None

@sm.aggregate
class total:
    def __init__(self):
        self.n = 0
    def update(self, n: int):
        self.n += n
    def merge(self, other):
        self.n += other.n
    def finish(self) -> int:
        return self.n

@sm.aggregate
class longest:
    def __init__(self):
        self.text = None
    def update(self, text: str | None):
        text = text or ""
        if self.text is None or (len(text), text) > (len(self.text), self.text):
            self.text = text
    def merge(self, other):
        self.update(other.text)
    def finish(self) -> str | None:
        return self.text
    def state(self):
        return self.text.encode()
    @classmethod
    def from_state(cls, data):
        made = cls()
        made.text = data.decode()
        return made

@sm.udf
def doubled(n: int) -> int:
    return 2 * n

@sm.aggregate
class refuses_seven:
    def update(self, n: int):
        if n == 7:
            raise ValueError("seven")
    def merge(self, other): pass
    def finish(self) -> int:
        return 0

@sm.aggregate
class dies:
    def update(self, n: int):
        import os
        os._exit(3)
    def merge(self, other): pass
    def finish(self) -> int:
        return 0

@sm.aggregate
class large:
    def __init__(self):
        self.parts = []
    def update(self, n: int):
        self.parts.append(b"x" * 4_000_000)
    def merge(self, other): pass
    def finish(self) -> int:
        return 0
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for part in range(3):
        numbers = range(part, ROWS, 3)
        columns = {
            "id": list(numbers),
            "word": [f"w{n % 5}" for n in numbers],
            "n": [None if n % 7 == 3 else n for n in numbers],
            "x": [n / 4 for n in numbers],
            "w": [float(n % 4) for n in numbers],
        }
        pq.write_table(pa.table(columns), folder / f"{part}.parquet", row_group_size=2_000)
    return folder


@pytest.fixture
def file(udf_file: Callable[[str], Path]) -> Path:
    return udf_file(FUNCTIONS)


# Queries with aggregate functions, and with SQL that computes the same.
QUERIES = [
    (
        "select word, weighted_mean(x, w) r, count(*) c from t group by word order by word",
        "select word, sum(x * w) / sum(w) r, count(*) c from t group by word order by word",
    ),
    (
        "select total(n) a, total(id) b, max(n) c from t",
        "select sum(n) a, sum(id) b, max(n) c from t",
    ),
    (
        "select id % 9000 k, total(n) r, total(n) filter (where x > 100) f from t group by 1"
        " order by r desc, k limit 50",
        "select id % 9000 k, coalesce(sum(n), 0) r, coalesce(sum(n) filter (where x > 100), 0) f"
        " from t group by 1 order by r desc, k limit 50",
    ),
    (
        "select total(n) r, weighted_mean(x, w) m, longest(word) l from t where id < 0",
        "select 0 r, cast(null as double) m, cast(null as varchar) l",
    ),
    (
        "select word, total(doubled(n)) r from t group by word having total(n) > 10 order by 1",
        "select word, sum(2 * n) r from t group by word having sum(n) > 10 order by 1",
    ),
    (
        "select id, total(n) r from t group by id order by id limit 20",
        "select id, coalesce(n, 0) r from t order by id limit 20",
    ),
]


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_workers_aggregate_parts_and_give_the_answers_of_sql(
    snowmelt: Snowmelt, table: Path, file: Path, workers: int
) -> None:
    given = ["--table", f"t={table}", "--workers", workers]
    for ours, plain in QUERIES:
        assert snowmelt.rows(ours, "--udf", file, *given) == snowmelt.rows(plain, *given), ours


def test_the_plan_shows_the_function_on_both_sides_of_the_exchange(
    snowmelt: Snowmelt, table: Path, file: Path
) -> None:
    query = "explain select word, total(n) from t group by word"
    shown = snowmelt.sql(query, "--udf", file, "--table", f"t={table}", "--workers", 3).succeeded()
    assert "mode=Partial" in shown.out and "mode=Final" in shown.out
    assert shown.out.count("total(t.n)") >= 2


def test_failures_have_the_line_of_the_user(snowmelt: Snowmelt, table: Path, file: Path) -> None:
    given = ["--udf", file, "--table", f"t={table}", "--workers", 3]
    failed = snowmelt.sql("select word, refuses_seven(id) from t group by 1", *given)
    report = failed.failed_with("SM-0201", "ValueError: seven", "n = 7")
    line = 3 + FUNCTIONS.splitlines().index('            raise ValueError("seven")')
    assert report["location"]["line"] == line and report["location"]["within"] == "update()"
    snowmelt.sql("select dies(id) from t", *given).failed_with("SM-0210", "dies")
    snowmelt.sql("select large(id) from t", *given).failed_with("SM-0213", "large")


def test_calls_that_cannot_be_are_refused(snowmelt: Snowmelt, table: Path, file: Path) -> None:
    given = ["--udf", file, "--table", f"t={table}"]
    for call, word in [
        ("total(distinct n)", "DISTINCT"),
        ("total(n order by id)", "ORDER BY"),
        ("total(n) over (order by id)", "OVER"),
    ]:
        snowmelt.sql(f"select {call} from t", *given).failed_with("SM-0107", "`total`", word)
    snowmelt.sql("select total(word) from t", *given).failed_with("SM-0103", "`total` takes")


def test_a_wrong_class_is_refused_when_it_is_loaded(
    snowmelt: Snowmelt, udf_file: Callable[[str], Path]
) -> None:
    file = udf_file(FUNCTIONS.replace("    def merge(self, other): pass\n", "", 1))
    failed = snowmelt.sql("select refuses_seven(1)", "--udf", file)
    report = failed.failed_with("SM-0205", "`refuses_seven`", "it has no method merge()")
    assert report["location"]["within"] == "class refuses_seven"


def test_a_registered_function_is_called_by_name(alone: Snowmelt, table: Path, file: Path) -> None:
    alone.run("up").succeeded()
    added = alone.run("udf", "add", file, "--test", "total(3)").succeeded()
    assert "aggregate total(n BIGINT) BIGINT version 1" in added.out.splitlines()
    assert "total(3) = 3" in added.err
    rows = alone.rows("select Total(n) r from t", "--table", f"t={table}", "--workers", 3)
    assert rows == alone.rows("select sum(n) r from t", "--table", f"t={table}")
    alone.run("down").succeeded()


@sm.aggregate
class value_range:
    def __init__(self) -> None:
        self.values: set[float] = set()

    def update(self, x: float) -> None:
        self.values.add(x)

    def merge(self, other: Any) -> None:
        self.values |= other.values

    def finish(self) -> float | None:
        return max(self.values) - min(self.values) if self.values else None


def test_python_sends_a_class_with_its_query(table: Path) -> None:
    with short_folder() as folder, warm_server(folder):
        query = "select word, value_range(x) r from t group by word order by word"
        plain = "select word, max(x) - min(x) r from t group by word order by word"
        expected = sm.sql(plain, t=table).rows()
        assert sm.sql(query, udfs=[value_range], t=table, workers=3).rows() == expected
        # The caller's names are looked up.
        assert sm.sql(query, t=table, workers=3).rows() == expected
        assert value_range.register() == 1
        assert sm.sql(query, udfs=[], t=table).rows() == expected
        from snowmelt.engines import remote

        with pytest.raises(TypeError, match=r"only sm\.sql can call"):
            remote(value_range)  # type: ignore[arg-type]
        with pytest.raises(sm.Error, match="aggregate function") as refused:
            remote("value_range")
        assert refused.value.code == "SM-0107"
