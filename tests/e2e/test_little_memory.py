"""Each operator over more rows than fit into a worker of 64 MiB: the answers of DuckDB."""

from pathlib import Path

import duckdb
import pytest
from conftest import Snowmelt
from suites import warm_server
from test_memory import expected, run, spilled

MEMORY = "64MiB"

ROWS = 800_000

# `k` is unique and in no order; half of the keys of each table are in the other.
TABLES = {
    "numbers": f"select i * 7919 % {ROWS} k, i * 31 % 1000003 v,"
    f" (i * 104729 % {ROWS} / 100)::double x, 'text ' || i % 1000 t from range({ROWS}) r(i)",
    "texts": f"select {ROWS // 2} + i * 7919 % {ROWS} k, i v, md5(i::varchar) m"
    f" from range({ROWS}) r(i)",
}

QUERIES = {
    "groups": "select count(*) c, sum(n) n, sum(s) s, max(t) t from"
    " (select k, t, count(*) n, sum(v) s from numbers a group by k, t)",
    "distinct": "select count(distinct t || k) k from numbers a",
    "window": "select count(*) c, sum(s) s from"
    " (select sum(v) over (partition by k % 1000 order by x, k) s from numbers a)",
    "window over all rows": "select count(*) c, sum(s) s, max(m) m from"
    " (select sum(v) over () s, max(t) over () m, k from numbers a)",
    "full join": "select count(*) c, count(a.k) ka, count(b.k) kb, sum(a.v) va, sum(b.v) vb,"
    " max(a.m || b.m) m from texts a full join texts b on a.k = b.v",
    "offset": "select k, v, t from numbers a order by t, x, k limit 3 offset 700000",
    "offset of one column": "select k, t from numbers a order by k limit 3 offset 700000",
    "sort": "select sum(k * r) s from"
    " (select k, row_number() over (order by t, k) r from numbers a)",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    for name, rows in TABLES.items():
        (folder / name).mkdir()
        duckdb.sql(f"copy ({rows}) to '{folder / name / '0.parquet'}' (format parquet)")
    return {name: folder / name for name in TABLES}


@pytest.mark.parametrize("name", QUERIES)
def test_every_operator_finishes_in_little_memory(
    alone: Snowmelt, tables: dict[str, Path], name: str
) -> None:
    sql = QUERIES[name]
    with warm_server(alone.folder):
        rows, profile = run(sql, tables, MEMORY, workers=1)
    assert rows == expected(sql, tables)
    assert spilled(profile) > 0


def test_a_row_group_that_is_larger_than_a_worker_is_read(alone: Snowmelt, tmp_path: Path) -> None:
    place = tmp_path / "wide"
    place.mkdir()
    # Numbers in no order, which take all of their bytes.
    columns = ", ".join(f"hash(i + {n} * 1000003) & 9007199254740991 c{n}" for n in range(16))
    duckdb.sql(
        f"copy (select {columns} from range(1000000) r(i)) to '{place / '0.parquet'}'"
        " (format parquet, row_group_size 1000000, compression uncompressed)"
    )
    assert (place / "0.parquet").stat().st_size > 100 << 20
    tables = {"wide": place}
    sql = "select " + ", ".join(f"max(c{n}) c{n}" for n in range(16)) + " from wide"
    with warm_server(alone.folder):
        rows, _ = run(sql, tables, MEMORY, workers=1)
        assert rows == expected(sql, tables)


def test_what_needs_all_values_at_once_is_refused(alone: Snowmelt, tables: dict[str, Path]) -> None:
    refused = alone.run(
        "sql", "select median(x) m, array_agg(t), array_agg(t || x) from numbers",
        "--table", f"numbers={tables['numbers']}", "--memory", MEMORY, "--workers", 1,
    )  # fmt: skip
    refused.failed_with("SM-0402", "--memory")
