"""`CREATE FUNCTION` and `DROP FUNCTION`: functions that SQL defines, and wrong statements."""

import json
from pathlib import Path

from conftest import Snowmelt

SCORE = """
create function score(x double, y text)
  returns double
  language python
  memory = '256MiB', timeout = '20s'
as $$
    prefix = '''
  two'''
    return x * 2 if y + prefix == "a\\n  two" else None
$$;
"""


def test_a_defined_function_is_called_by_name(alone: Snowmelt, tmp_path: Path) -> None:
    alone.run("up").succeeded()
    created = alone.rows(SCORE)
    signature = "score(x DOUBLE, y VARCHAR) DOUBLE"
    assert created == [{"function": "score", "version": 1, "signature": signature}]
    rows = alone.rows("select score(2, 'a') a, score(2, 'b') b, Score(null, 'a') c")
    assert rows == [{"a": 4.0, "b": None, "c": None}]
    shown = json.loads(alone.run("udf", "show", "score", "-o", "json").succeeded().out)
    assert (shown["signature"]["memory"], shown["signature"]["timeout"]) == ("256MiB", "20s")
    # It stays, and nothing of it changes, unless the statement says so.
    alone.sql(SCORE.replace("x * 2", "x * 3")).failed_with("SM-0226", "`score`", "OR REPLACE")
    assert alone.rows("select score(2, 'a') a") == [{"a": 4.0}]
    replaced = SCORE.replace("create", "create or replace").replace("x * 2", "x * 3")
    file = tmp_path / "score.sql"
    file.write_text(replaced)
    alone.run("sql", "-f", file).succeeded()
    assert alone.rows("select score(2, 'a') a") == [{"a": 6.0}]
    alone.run("down").succeeded()
    alone.run("up").succeeded()
    assert alone.rows("select score(2, 'a') a") == [{"a": 6.0}]
    assert alone.rows("drop function score") == [{"function": "score", "dropped": True}]
    alone.sql("drop function score").failed_with("SM-0220", "no function `score` is registered")
    dropped = alone.rows("drop function if exists score")
    assert dropped == [{"function": "score", "dropped": False}]
    alone.run("down").succeeded()


def test_types_and_nulls_are_those_that_the_statement_declares(alone: Snowmelt) -> None:
    alone.run("up").succeeded()
    alone.sql(
        "create function kinds(a int null, b decimal(10, 2), c timestamp, d date, e text[]) "
        "returns text language python as $$\n"
        "return ' '.join(type(v).__name__ for v in (a, b, c, d, e))\n$$"
    ).succeeded()
    day = "timestamp '2026-01-02 03:04:05', date '2026-01-02'"
    call = f"kinds(null, cast(1.5 as decimal(10, 2)), {day}, ['x'])"
    assert alone.rows(f"select {call} k") == [{"k": "NoneType Decimal datetime date list"}]
    # A number of the statement has the declared type, if that represents it.
    assert alone.rows(f"select kinds(-7, 1.5, {day}, ['x']) k") == [
        {"k": "int Decimal datetime date list"}
    ]
    for call in (f"kinds(2147483648, 1.5, {day}, ['x'])", f"kinds(7, 1.005, {day}, ['x'])"):
        alone.sql(f"select {call}").failed_with("SM-0103", "`kinds` takes")
    # A module with functions of its own; batches instead of rows.
    alone.sql(
        "create function halves(x double) returns double language python "
        "with (batch = 'numpy') as $$\n"
        "import numpy\n\ndef half(x):\n    return x / numpy.float64(2)\n\n"
        "def halves(x):\n    return half(x)\n$$"
    ).succeeded()
    assert alone.rows("select sum(halves(range)) s from range(0, 101)") == [{"s": 2525.0}]
    alone.run("down").succeeded()


def test_wrong_code_is_shown_with_its_line_in_the_statement(alone: Snowmelt) -> None:
    alone.run("up").succeeded()
    begin = "create function f(x bigint)\nreturns bigint language python as $$\n"
    wrong = alone.sql(begin + "  y = = x\n  return y\n$$").failed_with("SM-0204", "y = = x")
    assert (wrong["location"]["file"], wrong["location"]["line"]) == ("CREATE FUNCTION f", 3)
    module = "import json\nraise ValueError('at once')\ndef f(x): pass\n$$"
    wrong = alone.sql(begin + module).failed_with("SM-0204", "raise ValueError", "at once")
    assert (wrong["location"]["file"], wrong["location"]["line"]) == ("CREATE FUNCTION f", 4)
    alone.sql(begin + "x + 1\n$$").failed_with("SM-0204", "neither returns a value")
    alone.sql(begin + "return x $$ colour").failed_with("SM-0101", "memory", "return x $$ colour")
    alone.sql(begin + "return x $$ memory = 'lots'").failed_with("SM-0205", "lots")
    alone.sql("create function f(x colour) returns int").failed_with("SM-0101")
    alone.sql("create table t as select 1").failed_with("SM-0101", "CREATE TABLE is not allowed")
    assert alone.run("udf", "ls").succeeded().out == ""
    # It fails later, in a call.
    alone.sql(begin + "\n\n  return 1 // x\n$$").succeeded()
    raised = alone.sql("select f(0)").failed_with("SM-0201", "ZeroDivisionError", "return 1 // x")
    assert raised["location"] == {"file": "CREATE FUNCTION f", "line": 5, "within": "f()"}
    alone.run("down").succeeded()


def test_a_replacement_needs_nothing_of_what_it_replaces(alone: Snowmelt, tmp_path: Path) -> None:
    alone.run("up").succeeded()
    file = tmp_path / "g.py"
    file.write_text("import snowmelt as sm\n@sm.udf\ndef g(x: int) -> int:\n    return x\n")
    alone.run("udf", "add", file).succeeded()
    # The name in the statement is no call: the arguments of the function may be others.
    alone.sql(
        "create or replace function g(y text, z text) returns text language python as $$\n"
        "return y + z\n$$"
    ).succeeded()
    assert alone.rows("select g('a', 'b') a") == [{"a": "ab"}]
    alone.run("down").succeeded()


def test_packages_of_a_definition_are_installed(alone: Snowmelt) -> None:
    alone.run("up").succeeded()
    alone.sql(
        "create function country(phone text) returns text language python "
        "packages = ['phonenumbers==8.13.*'] as $$\n"
        "    import phonenumbers\n"
        "    return phonenumbers.region_code_for_number(phonenumbers.parse(phone))\n$$"
    ).succeeded()
    assert alone.rows("select country('+4930123456') c") == [{"c": "DE"}]
    missing = "create function f() returns text language python packages = 'six==99.0' "
    alone.sql(missing + "as $$ return 'x' $$").failed_with("SM-0301", "six")
    assert alone.run("udf", "ls", "-o", "csv").succeeded().out.count("\n") == 2
    alone.run("down").succeeded()


PROGRAM = """
import snowmelt as sm

json = "a module in the code is none of the caller's"
made = sm.sql('''create function twice(x double) returns double language python as $$
from json import loads
def twice(x):
    return loads(str(x * 2))
$$''')
print(made.rows())
print(sm.sql("select twice(2.5)").rows())
sm.sql("drop function twice")
try:
    sm.sql("select twice(2.5)").rows()
except sm.QueryError as error:
    print(error.code)
"""


def test_python_defines_functions_at_once(alone: Snowmelt) -> None:
    alone.run("up").succeeded()
    assert alone.python(PROGRAM).succeeded().out.splitlines() == [
        "[('twice', 1, 'twice(x DOUBLE) DOUBLE')]",
        "[(5.0,)]",
        "SM-0102",
    ]
    alone.run("down").succeeded()
