"""Wrong SQL, wrong data and wrong options: error code, message and hint."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt


@pytest.fixture
def customer(data: Path) -> str:
    return f"'{data / 'customer'}'"


def test_wrong_sql_has_a_caret(snowmelt: Snowmelt, customer: str) -> None:
    report = snowmelt.sql(f"select c_name from {customer} where (c_custkey > 1 group").failed_with(
        "SM-0101"
    )
    assert any(line.strip() == "^" for line in report["excerpt"]), report


def test_an_unknown_column_gets_the_nearest_name(snowmelt: Snowmelt, customer: str) -> None:
    done = snowmelt.sql(f"select c_nam from {customer}")
    report = done.failed_with("SM-0102", "c_nam")
    assert "c_name" in report["hint"]
    assert done.code == 1


def test_an_unknown_table_gets_the_nearest_name(snowmelt: Snowmelt, data: Path) -> None:
    named = ("--table", f"customer={data / 'customer'}")
    report = snowmelt.sql("select 1 from custome", *named).failed_with("SM-0102", "custome")
    assert "customer" in report["hint"]


def test_an_unknown_function_gets_the_nearest_name(snowmelt: Snowmelt, customer: str) -> None:
    snowmelt.sql(f"select uper(c_name) from {customer}").failed_with("SM-0102", "upper")


def test_a_missing_location(snowmelt: Snowmelt) -> None:
    snowmelt.sql("select 1 from 'no/such/folder/'").failed_with("SM-0105", "no/such/folder")


def test_an_empty_folder(snowmelt: Snowmelt, tmp_path: Path) -> None:
    snowmelt.sql(f"select 1 from '{tmp_path}/'").failed_with("SM-0104", str(tmp_path))


@pytest.mark.parametrize("left", [0, 7, 1000])
def test_a_truncated_file_is_named(
    snowmelt: Snowmelt, data: Path, tmp_path: Path, left: int
) -> None:
    parts = sorted((data / "customer").glob("*.parquet"))
    for number, part in enumerate(parts[:2]):
        content = part.read_bytes()
        (tmp_path / f"p{number}.parquet").write_bytes(content if number else content[:left])
    snowmelt.sql(f"select count(*) from '{tmp_path}'").failed_with("SM-0106", "p0.parquet")


def test_damage_in_the_middle_of_a_file_is_an_error(
    snowmelt: Snowmelt, data: Path, tmp_path: Path
) -> None:
    content = bytearray(next((data / "customer").glob("*.parquet")).read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    content[4:-footer] = b"\xff" * (len(content) - 4 - footer)
    (tmp_path / "bad.parquet").write_bytes(content)
    snowmelt.sql(f"select max(length(c_comment)) from '{tmp_path}'").failed_with(
        "SM-0106", "bad.parquet"
    )


def test_a_page_that_does_not_match_its_checksum(snowmelt: Snowmelt, tmp_path: Path) -> None:
    table = pa.table({"a": list(range(5000)), "n": list(range(5000))})
    path = tmp_path / "t" / "bad.parquet"
    path.parent.mkdir()
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    (path.parent / "good.parquet").write_bytes(path.read_bytes())
    sql = f"select sum(n) as n from '{path.parent}'"
    assert snowmelt.rows(sql) == [{"n": 2 * sum(range(5000))}]
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    path.write_bytes(content)
    snowmelt.sql(sql).failed_with("SM-0106", "bad.parquet", "column `n` in row group 0", "checksum")
    assert snowmelt.rows(sql.replace("n)", "a)")) == [{"n": 2 * sum(range(5000))}]


def test_what_the_planner_lacks_is_refused_by_name(snowmelt: Snowmelt) -> None:
    asked = "exists (select 1 from (values (1)) c(z) where z = y and z = x)"
    lateral = f"lateral (select y from (values (1)) b(y) where {asked} limit 1) d"
    sql = f"select * from (values (1)) a(x), {lateral}"
    report = snowmelt.sql(sql).failed_with("SM-0107", "a subquery inside of LATERAL")
    assert report["hint"]


def test_a_subquery_as_a_value_has_one_row(snowmelt: Snowmelt, data: Path) -> None:
    sql = f"select 1 where 1 > (select c_custkey from '{data / 'customer'}')"
    snowmelt.sql(sql).failed_with("SM-0109", "more than one row")


@pytest.mark.parametrize(
    "statement",
    ["create table t (a int)", "insert into t values (1)", "copy t to 'x'", "set a = 1"],
)
def test_statements_that_change_data_are_refused(snowmelt: Snowmelt, statement: str) -> None:
    report = snowmelt.sql(statement).report
    assert report["code"] in ("SM-0101", "SM-0107"), report


def test_two_statements_are_refused(snowmelt: Snowmelt) -> None:
    assert snowmelt.sql("select 1; select 2").report["code"] in ("SM-0101", "SM-0107")


def test_a_value_that_breaks_an_expression(snowmelt: Snowmelt, customer: str) -> None:
    done = snowmelt.sql(f"select cast(c_name as int) from {customer}")
    assert done.report["code"] in ("SM-0103", "SM-0109"), done.report


def test_a_wrong_option_is_a_usage_error(snowmelt: Snowmelt) -> None:
    assert snowmelt.run("sql", "select 1", "--wrokers", 2).code == 2
    assert snowmelt.run("sql", "select 1", "--memory", "much").code == 2


def test_an_unknown_key_of_the_configuration(snowmelt: Snowmelt, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[query]\nwrokers = 2\n")
    snowmelt.environment = {"SNOWMELT_CONFIG": str(file)}
    done = snowmelt.sql("select 1")
    done.failed_with("SM-0110", "wrokers", "workers")
    assert done.code == 2


def test_the_time_of_a_query_is_limited(snowmelt: Snowmelt, tmp_path: Path, data: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\nimport snowmelt as sm\n\n@sm.udf\ndef slow(x: int) -> int:\n"
        "    time.sleep(600)\n    return x\n"
    )
    sql = f"select slow(c_custkey) from '{data / 'customer'}'"
    done = snowmelt.sql(sql, "--udf", slow, "--timeout", "3s")
    done.failed_with("SM-0112")
    assert done.code == 124
