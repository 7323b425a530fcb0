"""CSV files as other programs write them have the rows and types that DuckDB finds in them."""

import gzip
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Snowmelt

FILES = {
    "bank.csv": "Tag;Betrag;Art\n31.12.2024;-1.234,50;NA\n01.02.2024;7;-\n15.03.2024;0,5;x\n",
    "us.csv": "d,t,n\n12/31/2024,12/31/2024 11:59:59 PM,1\n01/02/2024,01/02/2024 07:05:00 AM,2\n",
    "day.csv": "d,t\n31/12/2024,31/12/2024 10:00:00\n01/02/2024,01/02/2024 23:59:59\n",
    "year.csv": "d,x\n2024/12/31,a\n2024/02/01,b\n",
    "null.csv": "a,b\n1,NA\n,x\nNA,\n",
    "short.csv": "a,b,c\n1,2\n3,4,5,6\n7\n",
    "wrong.csv": "a,b\n1,x\n2,y\nz,w\n4,v\n",
    "note.csv": "# made today\na,b\n1,x#y\n# no\n2,z\n",
    "grouped.csv": 'a;b\n"1,234";5\n"12,345,678";6\n',
    "plain.csv": "1,2.005,2024-01-01\n2,3,2024-01-02\n",
    "loose.csv": 'n,s\n1,"x "y" z"\n2,"b"\n3,a "c" d\n4,"b"e"\n',
    "fixed.csv": "d,t\n1.2.24,01|02|2024 10h05\n3.4.25,03|04|2024 23h59\n",
}

CALLS = [
    "'bank.csv', decimal_separator => ',', thousands => '.', nullstr => ['NA', '-']",
    "'bank.csv', dateformat => '%d.%m.%Y'",
    "'bank.csv', all_varchar => true",
    "'us.csv'",
    "'day.csv'",
    "'day.csv', timestampformat => '%d/%m/%Y %H:%M:%S'",
    "'day.csv', types => {'d': 'VARCHAR'}",
    "'year.csv'",
    "'null.csv'",
    "'null.csv', nullstr => 'NA'",
    "'null.csv', nullstr => ['NA', '']",
    "'short.csv', null_padding => true",
    "'wrong.csv', ignore_errors => true, types => {'a': 'INTEGER'}",
    "'note.csv', comment => '#'",
    "'grouped.csv', thousands => ','",
    "'loose.csv', strict_mode => false",
    "'plain.csv', columns => {'id': 'SMALLINT', 'price': 'DECIMAL(10,2)', 'day': 'VARCHAR'}",
    "'plain.csv', names => ['id', 'price'], header => false",
    "'fixed.csv', dateformat => '%d.%m.%y', timestampformat => '%d|%m|%Y %Hh%M', delim => ','",
    "['plain.csv', 'plain.csv'], header => false",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csv")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("call", CALLS)
def test_csv_files_are_those_of_duckdb(snowmelt: Snowmelt, folder: Path, call: str) -> None:
    sql = f"select * from read_csv({call})"
    answer = folder / "answer.parquet"
    snowmelt.run("sql", sql, "--workers", 1, "-O", answer, cwd=folder).succeeded()
    with duckdb.connect() as engine:
        engine.execute(f"set file_search_path = '{folder}'")
        engine.execute(f"create table theirs as {sql}")
        engine.execute(f"create table ours as from '{answer}'")
        assert _rows(engine, "describe ours") == _rows(engine, "describe theirs")
        # Values are compared as texts of one engine.
        texts = "select columns(*)::varchar from {} order by all"
        assert _rows(engine, texts.format("ours")) == _rows(engine, texts.format("theirs"))


def _rows(engine: Any, sql: str) -> list[tuple[Any, ...]]:
    return list(engine.execute(sql).fetchall())


def test_options_of_a_query_and_wrong_ones(snowmelt: Snowmelt, folder: Path) -> None:
    packed = folder / "bank.csv.gz"
    packed.write_bytes(gzip.compress(FILES["bank.csv"].encode()))
    sql = f'select sum("Betrag") as s, count("Art") as n from \'{packed}\''
    options = ["--csv", "decimal=,", "--csv", "thousands=.", "--csv", "nullstr=NA"]
    assert snowmelt.rows(sql, *options, "--csv", "nullstr=-") == [{"s": -1227.0, "n": 1}]
    typed = ["--csv", "types.Betrag=VARCHAR", "--csv", "types.Tag=VARCHAR"]
    sql = f'select max("Betrag") as b, max("Tag") as t from \'{packed}\''
    assert snowmelt.rows(sql, *typed) == [{"b": "7", "t": "31.12.2024"}]
    refused = snowmelt.sql(sql, "--csv", "decimal_comma=true")
    refused.failed_with("SM-0110", "`csv` has no option `decimal_comma`", "nullstr")
    snowmelt.sql(sql, "--csv", "decimal").failed_with("SM-0110", "OPTION=VALUE")
    program = f"""
import snowmelt as sm
types = {{"Betrag": "DECIMAL(9,1)"}}
csv = {{"decimal": ",", "thousands": ".", "nullstr": ["NA", "-"], "types": types}}
rows = sm.sql('select sum("Betrag"), count("Art") from t', t={str(packed)!r}, csv=csv).rows()
assert [str(value) for value in rows[0]] == ["-1227.0", "1"], rows
"""
    snowmelt.python(program).succeeded()


def test_names_of_files_and_lists_of_locations(snowmelt: Snowmelt, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"n": 1},\n {"n": 2}]')
    (tmp_path / "b.json").write_text('{\n"n": 3\n}\n{"n": 4}')

    def rows(sql: str) -> list[dict[str, Any]]:
        return snowmelt.rows(sql, "--workers", 2, cwd=tmp_path)

    assert rows("select count(*) as n from glob('*.json')") == [{"n": 2}]
    assert rows("select file from glob('*.csv')") == []
    expected = [{"f": str(tmp_path / name), "n": n} for name, n in (("a.json", 3), ("b.json", 7))]
    sql = "from read_json(['a.json', 'b.json'], filename => 'f') group by f order by f"
    assert rows(f"select f, sum(n) as n {sql}") == expected
