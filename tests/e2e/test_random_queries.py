"""Random queries, and a few chosen ones, have DuckDB's answers with one, few and many workers."""

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt
from random_sql import random_query
from random_tables import write_tables
from reference import Reference
from suites import WORKERS, ask, failures, report, warm_server, wrong

QUERIES = 1000

# Errors of DataFusion itself for valid queries. They may end at most one query in a hundred.
KNOWN_ERRORS = [
    # A rewrite of `sum(distinct ...)` names two columns alike.
    "SM-0102: two columns are named",
    # A rule of the optimiser and the planner disagree about whether a column may be null.
    "Physical input schema should be the same as the one converted from logical input schema",
]

COUNTED = "with recursive w(c) as (select 0 union all select c + 1 from w where c < 4) "
# Queries that once were wrong, or ended with an error.
CHOSEN = {
    "recursion, left join": COUNTED + "select count(*), count(c) from u left join w on k = c",
    "recursion, full join": COUNTED + "select count(*), count(c) from u full join w on k = c",
    "recursion, right join": COUNTED + "select count(*), count(c) from w right join u on k = c",
    "recursion, not exists": (
        COUNTED + "select count(*) from u where not exists (select 1 from w where c = k)"
    ),
    "order of one row": (
        "select * from (select min(k + 1) as a from u intersect select k from t) order by 1 desc"
    ),
    "join with union all": (
        "select count(*) from (select k from t union all select k from u) as o, v where o.k = v.id"
    ),
    "constants of union all": "select sum(a) from (select k as a from t union all select 0 from u)",
    "order by constants of union all": (
        "select * from (select 1 as a, k from t union all select 2 as a, k + 100 from u) as o"
        " order by a desc, k nulls last limit 5"
    ),
    "not in with nulls": "select count(*) from t where k not in (select k from v)",
    "not in with nulls, below or": (
        "select count(*) from u where dt > date '2030-01-01' or dt not in (select dt from u)"
    ),
    "not in without values, below or": (
        "select count(*) from u where dt > date '2030-01-01' or dt not in (select dt from e)"
    ),
    "not in with nulls, below case": (
        "select count(*) from t where case when k not in (select k from v) then id > 5"
        " when not (k in (select k from v where k is not null)) then false else id > 3 end"
    ),
    "not in of a constant": (
        "select count(*) from t where timestamp '2024-01-22 16:00:00' not in (select ts from v)"
    ),
    "not in of a constant, without nulls": (
        "select count(*) from t"
        " where timestamp '1999-01-22 16:00:00' not in (select ts from v where ts is not null)"
    ),
    "in with nulls, is null": "select count(*) from t where (k in (select k from v)) is null",
    "not in, correlated, below or": (
        "select count(*) from t where k > 100 or g not in (select g from u where u.k = t.k)"
    ),
    "intersect all": "select f, k from t intersect all select f, k from u",
    "intersect all of distinct": "select distinct f from t intersect all select f from u",
    "except all": "select f from t except all select f from v",
    "except all in a subquery": (
        "select id from t where k in (select k from t except all select k from u)"
    ),
}


@pytest.mark.parametrize("workers", WORKERS)
def test_answers_to_chosen_queries(alone: Snowmelt, tmp_path: Path, workers: int) -> None:
    tables = write_tables(tmp_path)
    reference = Reference(tables)
    with warm_server(alone.folder):
        found = failures(CHOSEN, lambda sql: wrong(sql, tables, workers, reference))
    assert not found, report(found, CHOSEN, workers)


def test_a_column_of_one_number_and_nan_keeps_both(alone: Snowmelt, tmp_path: Path) -> None:
    # Statistics do not count NaN: the minimum and the maximum are the number.
    path = tmp_path / "nan.parquet"
    pq.write_table(pa.table({"k": [1, 2], "f": [float("nan"), 27.5]}), path)
    with warm_server(alone.folder):
        answer = ask("select f from nan order by k", {"nan": path}, 1)["f"].to_pylist()
        largest = ask("select max(f) m from nan", {"nan": path}, 1)["m"].to_pylist()
    assert str(answer) == "[nan, 27.5]"
    assert str(largest) == "[nan]"


@pytest.mark.parametrize("workers", WORKERS)
def test_answers_to_random_queries(alone: Snowmelt, tmp_path: Path, workers: int) -> None:
    mine = range(WORKERS.index(workers), QUERIES, len(WORKERS))
    queries = {f"seed {seed}": random_query(seed) for seed in mine}
    tables = write_tables(tmp_path)
    reference = Reference(tables)
    with warm_server(alone.folder):
        found = failures(queries, lambda sql: wrong(sql, tables, workers, reference))
    known = [name for name, text in found.items() if re.search("|".join(KNOWN_ERRORS), text)]
    unknown = {name: text for name, text in found.items() if name not in known}
    assert not unknown, report(unknown, queries, workers)
    assert len(known) <= len(queries) / 100, known


def test_random_queries_are_valid_and_have_rows(tmp_path: Path) -> None:
    reference = Reference(write_tables(tmp_path))
    valid = with_rows = 0
    for seed in range(0, QUERIES, 5):
        try:
            with_rows += reference.expected(random_query(seed)).table.num_rows > 0
            valid += 1
        except duckdb.Error as error:
            print(f"seed {seed}: {error}")
    assert valid >= QUERIES / 5 * 0.95
    assert with_rows >= QUERIES / 5 * 0.6
