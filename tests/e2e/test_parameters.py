"""Values of parameters, from the command line and from Python: they are never read as SQL."""

from pathlib import Path

from conftest import Snowmelt


def test_parameters_of_the_command_line(snowmelt: Snowmelt, data: Path) -> None:
    sql = "select count(*) as n from customer where c_name = :name and c_custkey < $most"
    tables = ["--table", f"customer={data / 'customer'}"]
    name = "name:varchar=Customer#000000007"
    assert snowmelt.rows(sql, *tables, "--param", name, "--param", "most=10") == [{"n": 1}]
    injected = "name:varchar=x' or 1 = 1 --"
    assert snowmelt.rows(sql, *tables, "--param", injected, "--param", "most=10") == [{"n": 0}]
    rows = snowmelt.rows("select ? as a, ? as b", "--param", "2=x", "--param", "1=1.5")
    assert rows == [{"a": 1.5, "b": "x"}]
    refused = snowmelt.sql(sql, *tables, "--param", name)
    refused.failed_with("SM-0101", "$most has no value", "--param")
    refused = snowmelt.sql("select 1", "--param", "x=1")
    refused.failed_with("SM-0110", "no parameter")


def test_parameters_of_python(snowmelt: Snowmelt) -> None:
    program = """
import datetime as dt, decimal
import snowmelt as sm
utc = dt.timezone.utc
values = [None, True, -5, 0.1, decimal.Decimal("1.50"), "it's", b"\\x00\\xff", dt.date(2024, 1, 31),
          dt.datetime(2024, 1, 31, 12, 0, 0, 5), dt.datetime(2024, 1, 31, 12, tzinfo=utc), [1, 2]]
marks = ", ".join(f"? as c{n}" for n in range(len(values)))
assert sm.sql(f"select {marks}", params=values).rows() == [tuple(values)]
step = {"day": dt.date(2024, 1, 31), "step": dt.timedelta(days=1)}
moved = sm.sql("select :day + :step as day", params=step)
assert str(moved.rows()[0][0])[:10] == "2024-02-01"
try:
    sm.sql("select ?", params=[1, 2]).rows()
except sm.Error as error:
    assert error.code == "SM-0110", error
else:
    raise AssertionError("a value without a parameter")
"""
    snowmelt.python(program).succeeded()
