"""Calls of functions that a query saves, counted by the functions themselves."""

from pathlib import Path

from conftest import Snowmelt

FUNCTIONS = """
import snowmelt as sm

calls = 0

@sm.udf
def doubled(n: int) -> int:
    return n * 2

@sm.udf
def number(n: int) -> int:
    # The number of calls so far: another one each time.
    global calls
    calls += 1
    return calls

@sm.udf(deterministic=True)
def pure(n: int) -> int:
    global calls
    calls += 1
    return calls

@sm.udf
def picky(n: int) -> int:
    if n == 7:
        raise ValueError("seven")
    return n
"""

ROWS = "(select range as value from range(0, 20000))"


def file(folder: Path) -> Path:
    path = folder / "functions.py"
    path.write_text(FUNCTIONS)
    return path


def test_a_row_has_one_value_of_a_call(alone: Snowmelt, tmp_path: Path) -> None:
    options = ("--udf", file(tmp_path), "--workers", "1")
    alone.run("up").succeeded()
    query = f"""
        select count(*) rows, sum(case when a = b then 1 else 0 end) same
        from (select number(value) a, number(value) b from {ROWS}
              where number(value) > 0 order by number(value)) t
    """
    assert alone.rows(query, *options) == [{"rows": 20000, "same": 20000}]
    joined = f"""
        select count(*) rows, count(distinct n) different
        from (select a.value v, number(a.value) n from {ROWS} a join {ROWS} b on a.value = b.value
              where number(a.value) > 0) t
    """
    assert alone.rows(joined, *options) == [{"rows": 20000, "different": 20000}]
    explained = f"explain select doubled(value) d from {ROWS} where doubled(value) > 3"
    plan = alone.rows(explained, *options)
    assert any("as __call_1" in row["plan"] for row in plan), plan
    alone.run("down").succeeded()


def test_rows_that_do_not_need_a_call_get_none(alone: Snowmelt, tmp_path: Path) -> None:
    options = ("--udf", file(tmp_path), "--workers", "1")
    alone.run("up").succeeded()
    for query in [
        f"select count(*) c from {ROWS} where picky(value) >= 0 and value <> 7",
        f"""select count(*) c from (
              select picky(value) p, value from {ROWS} where value <> 7 order by picky(value)) t
            where p >= 0""",
        f"""select count(p) c from (
              select case when value <> 7 then picky(value) end p from {ROWS}) t
            where p is not null or p > 0""",
    ]:
        assert alone.rows(query, *options) == [{"c": 19999}], query
    failed = alone.sql(f"select sum(picky(value)) s from {ROWS}", *options)
    failed.failed_with("SM-0201", "seven")
    alone.run("down").succeeded()


def test_repeated_arguments_of_a_deterministic_function_are_sent_once(
    alone: Snowmelt, tmp_path: Path
) -> None:
    path = file(tmp_path)
    options = ("--udf", path, "--workers", "1")
    alone.run("up").succeeded()
    query = f"select count(distinct pure(value % 50)) different from {ROWS}"
    assert alone.rows(query, *options) == [{"different": 50}]
    each = query.replace("pure(", "number(")
    assert alone.rows(each, *options) == [{"different": 20000}]
    # The property stays with a function that is registered, also by SQL.
    alone.run("udf", "add", path).succeeded()
    listed = alone.run("udf", "ls").succeeded().out
    assert "pure(n BIGINT) BIGINT DETERMINISTIC" in listed
    alone.sql(
        "create function once(n bigint) returns bigint language python immutable as $$\n"
        "calls = []\n"
        "def once(n):\n"
        "    calls.append(n)\n"
        "    return len(calls)\n$$"
    ).succeeded()
    once = query.replace("pure(", "once(")
    assert alone.rows(once, "--workers", "1") == [{"different": 50}]
    alone.sql(
        "create function f(n bigint) returns bigint language python immutable stable as $$\n"
        "return n\n$$"
    ).failed_with("SM-0101", "given twice")
    alone.run("down").succeeded()
