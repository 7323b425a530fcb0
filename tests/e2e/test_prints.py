"""What functions print appears on stderr of the program that uses them."""

import json
from pathlib import Path
from typing import IO

from conftest import Snowmelt

PROGRAM = """
import json
import snowmelt as sm

@sm.udf
def score(n: int) -> int:
    print("scoring", n)
    return 2 * n

@sm.function
def hello(event):
    print("called with", event)
    return event

query = sm.sql("select score(21) as s")
rows = query.rows()
called = hello.remote("x")
mapped = sm.map(lambda item: print("item", item) or item, [1, 2], workers=1)
print(json.dumps([rows, called, mapped, query.profile.get("printed")]))
"""


def test_prints_of_queries_calls_and_maps_are_shown(alone: Snowmelt) -> None:
    done = alone.python(PROGRAM).succeeded()
    printed = {"score": "scoring 21\n"}
    assert json.loads(done.out) == [[[42]], "x", [1, 2], printed]
    lines = done.err.splitlines()
    for line in ["score: scoring 21", "hello: called with x", "<lambda>: item 1"]:
        assert line in lines, done.err
    alone.environment = {"SNOWMELT_PRINTS": "0"}
    assert alone.python(PROGRAM).succeeded().err == ""


IN_ENGINES = """
import duckdb, pandas
import snowmelt as sm
from snowmelt.engines import duckdb as in_duckdb, pandas as in_pandas, remote

@sm.udf
def score(n: int) -> int:
    print("scoring", n)
    return 2 * n

with duckdb.connect() as connection:
    in_duckdb.register(connection, score)
    rows = connection.sql("select score(21)").fetchall()
silent = remote(score, prints=False)
print(rows, list(in_pandas.call(silent, pandas.Series([1]))))
"""


def test_prints_of_functions_that_engines_call_are_shown(alone: Snowmelt) -> None:
    done = alone.python(IN_ENGINES).succeeded()
    # DuckDB may show its progress before.
    assert (done.out.splitlines()[-1], done.err) == ("[(42,)] [2]", "score: scoring 21\n")
    alone.environment = {"SNOWMELT_PRINTS": "0"}
    assert alone.python(IN_ENGINES).succeeded().err == ""


def test_logs_are_followed_until_they_are_interrupted(alone: Snowmelt, tmp_path: Path) -> None:
    alone.run("up").succeeded()
    code = tmp_path / "f.py"
    code.write_text("def handler(event):\n    print('got', event)\n")
    alone.run("fn", "deploy", "f", code).succeeded()
    alone.run("fn", "call", "f", "--data", '"first"').succeeded()
    followed = alone.start("fn", "logs", "f", "--follow")
    assert followed.stdout is not None
    try:
        shown = _lines_to(followed.stdout, "got first")
        alone.run("fn", "call", "f", "--data", '"second"').succeeded()
        shown += _lines_to(followed.stdout, "got second")
    finally:
        followed.terminate()
        followed.wait(30)
    assert sum("got first" in line for line in shown) == 1
    alone.run("down").succeeded()


def _lines_to(shown: IO[str], word: str) -> list[str]:
    """The lines up to the one with a word."""
    lines: list[str] = []
    while not lines or word not in lines[-1]:
        lines.append(shown.readline())
        assert lines[-1], f"it ended before {word}"
    return lines
