"""Answers equal DuckDB's, in every format, single and concurrent, with complete clean-up."""

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from conftest import Snowmelt

from common import peers
from common.answers import difference
from common.machine_state import MachineState

QUERIES = {
    "the issue's": ("select l_returnflag, count(*) as n from lineitem group by 1", False),
    "q1": (Path("demo/queries/q1.sql"), True),
    "q6": (Path("demo/queries/q6.sql"), True),
    "filter and sort": (
        "select l_orderkey, l_linenumber, l_extendedprice, l_shipdate from lineitem"
        " where l_shipmode in ('AIR', 'RAIL') and l_comment like '%fox%'"
        " order by l_extendedprice desc, l_orderkey, l_linenumber limit 20",
        True,
    ),
    "distinct": ("select count(distinct l_partkey) as parts from lineitem", True),
    "having": (
        "select l_suppkey, avg(l_tax) as tax from lineitem group by 1 having count(*) > 620",
        False,
    ),
    "window": (
        "select l_shipmode, n, rank() over (order by n desc) as place from"
        " (select l_shipmode, count(*) as n from lineitem group by 1) order by place",
        True,
    ),
    "union all": (
        "select 'a' as t, sum(l_quantity) as s from lineitem where l_quantity < 10 union all"
        " select 'b', sum(l_quantity) from lineitem where l_quantity >= 10",
        False,
    ),
    "no rows": ("select * from lineitem where l_quantity < 0", False),
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("workers", [1, 3])
def test_answers_are_equal_to_those_of_duckdb(
    snowmelt: Snowmelt, data: Path, tmp_path: Path, name: str, workers: int
) -> None:
    text, ordered = QUERIES[name]
    checkout = Path(__file__).resolve().parents[2]
    sql = (checkout / text).read_text() if isinstance(text, Path) else text
    asked = ["-f", checkout / text] if isinstance(text, Path) else [sql]
    tables, answer = {"lineitem": data / "lineitem"}, tmp_path / "answer.arrow"
    arguments = ["--table", f"lineitem={data / 'lineitem'}", "--workers", workers]
    snowmelt.run("sql", *asked, *arguments, "-o", "arrow", "-O", answer).succeeded()
    expected = peers.duck_answer(sql, tables, threads=2).table
    assert difference(peers.read_arrow(answer), expected, ordered=ordered) is None


def test_a_location_quoted_in_from_and_complete_clean_up(snowmelt: Snowmelt, data: Path) -> None:
    """Afterwards processes, mounts, namespaces, cgroups and files are as before."""
    before = MachineState()
    sql = "select l_returnflag, count(*) as n from '{}' group by 1"
    rows = snowmelt.rows(sql.format("lineitem/*.parquet"), cwd=data)
    left = before.new_since()
    theirs = peers.duck_answer(sql.format(data / "lineitem/*.parquet"), {}, threads=1).table
    assert {r["l_returnflag"]: r["n"] for r in rows} == {
        r["l_returnflag"]: r["n"] for r in theirs.to_pylist()
    }
    assert not left


def test_every_format_holds_the_same_rows(snowmelt: Snowmelt, data: Path, tmp_path: Path) -> None:
    sql = f"select c_custkey, c_name from '{data / 'customer'}' order by 1 limit 5"
    expected = snowmelt.rows(sql)
    assert len(expected) == 5
    csv = snowmelt.run("sql", sql, "-o", "csv").succeeded().out.splitlines()
    assert csv == ["c_custkey,c_name", *(f"{r['c_custkey']},{r['c_name']}" for r in expected)]
    snowmelt.run("sql", sql, "-o", "parquet", "-O", tmp_path / "a.parquet").succeeded()
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist() == expected
    table = snowmelt.run("sql", sql, "-o", "table").succeeded().out
    assert all(r["c_name"] in table for r in expected)


def test_data_is_written_to_stdout_and_the_rest_to_stderr(snowmelt: Snowmelt, data: Path) -> None:
    sql = f"select count(*) as n from '{data / 'customer'}'"
    done = snowmelt.run("sql", sql, "-o", "json", "--progress", "plain", "--profile").succeeded()
    assert json.loads(done.out) == {"n": 1500}
    assert done.err


def test_a_profile_page_is_self_contained(snowmelt: Snowmelt, data: Path, tmp_path: Path) -> None:
    page = tmp_path / "profile.html"
    sql = f"select count(*) from '{data / 'lineitem'}' where l_comment <> '<script>'"
    snowmelt.sql(sql, "--profile-out", page).succeeded()
    text = page.read_text()
    assert "<script>'" not in text
    assert not any(word in text for word in ('src="http', 'href="http', "@import", "url(http"))


def test_two_concurrent_queries(snowmelt: Snowmelt, data: Path) -> None:
    sql = f"select sum(l_orderkey) as s from '{data / 'lineitem'}' where l_linenumber = "
    alone = [snowmelt.rows(f"{sql}{n}") for n in (1, 2)]
    started = [snowmelt.start("sql", f"{sql}{n}", "-o", "json", "--workers", 2) for n in (1, 2)]
    together = [snowmelt.finish(process).succeeded().out for process in started]
    assert [[json.loads(out)] for out in together] == alone


@pytest.fixture
def low_soft_limit() -> Iterator[None]:
    """Processes of the test have a soft limit of 256 open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("low_soft_limit")
def test_a_worker_reads_more_files_than_the_soft_limit(
    snowmelt: Snowmelt, tmp_path: Path, udf_file: Callable[[str], Path]
) -> None:
    table, first = tmp_path / "t", tmp_path / "t" / "0.parquet"
    table.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2]}), first)
    for number in range(1, 1500):
        (table / f"{number}.parquet").write_bytes(first.read_bytes())
    found = snowmelt.rows(f"select sum(n) as n from '{table}' where n > 1", "--workers", 1)
    assert found == [{"n": 3000}]
    udfs = udf_file(
        "import resource\n\n@sm.udf\ndef limit(n: int) -> str:\n"
        "    return str(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    found = snowmelt.rows(f"select limit(n) as of from '{first}' where n = 1", "--udf", udfs)
    assert found == [{"of": "(1024, 1024)"}]
