"""State that instances load once (`@sm.setup`), and the logs of registered functions."""

import json
from pathlib import Path

from conftest import Snowmelt

SCALED = """
import os
import time
import snowmelt as sm

runs = []

@sm.setup
def factor():
    time.sleep(0.05)
    runs.append(os.getpid())
    print("loading the factor")
    return 10

@sm.udf
def scaled(n: int) -> int:
    return n * factor()

@sm.udf
def loads(n: int) -> int:
    return len(runs)
"""

FAILS = """
import snowmelt as sm

@sm.setup
def model():
    return open("/no/such/model").read()

@sm.udf
def score(n: int) -> int:
    return len(model())
"""

# Many batches for one instance.
ROWS = "range(0, 40000)"


def file(folder: Path, text: str) -> Path:
    path = folder / "functions.py"
    path.write_text(text)
    return path


def test_an_instance_loads_its_state_once_for_all_batches(alone: Snowmelt, tmp_path: Path) -> None:
    path = file(tmp_path, SCALED)
    alone.run("up").succeeded()
    query = f"select sum(scaled(value)) s, max(loads(value)) l, min(loads(value)) f from {ROWS}"
    expected = [{"s": 10 * sum(range(40000)), "l": 1, "f": 1}]
    options = ("--udf", path, "--workers", "1")
    assert alone.rows(query, *options) == expected
    # Instances that are taken again have it already.
    profiled = alone.sql(query, *options, "--profile").succeeded()
    assert [json.loads(line) for line in profiled.out.splitlines()] == expected
    assert "set-up" not in profiled.err
    alone.run("udf", "add", path).succeeded()
    assert alone.rows(query, "--workers", "1") == expected
    alone.run("down").succeeded()


def test_the_time_of_a_set_up_is_in_the_profile(alone: Snowmelt, tmp_path: Path) -> None:
    path = file(tmp_path, SCALED)
    data = tmp_path / "data.csv"
    data.write_text("n\n" + "\n".join(map(str, range(1000))))
    alone.run("up").succeeded()
    query = f"select sum(scaled(n)) s from '{data}'"
    done = alone.sql(query, "--udf", path, "--workers", "1", "--profile").succeeded()
    assert json.loads(done.out) == {"s": 10 * sum(range(1000))}
    assert ", set-up " in done.err
    alone.run("down").succeeded()


def test_a_set_up_that_fails_is_an_error_of_its_own(alone: Snowmelt, tmp_path: Path) -> None:
    path = file(tmp_path, FAILS)
    alone.run("up").succeeded()
    # To register or describe a function loads nothing.
    alone.run("udf", "add", path).succeeded()
    for _ in range(2):
        failed = alone.sql("select score(1)").failed_with("SM-0207", "`score`", "FileNotFoundError")
        assert (failed["location"]["line"], failed["location"]["within"]) == (6, "model()")
    created = (
        "create function named() returns text language python as $$\nimport snowmelt as sm\n"
        "@sm.setup\ndef name():\n    return 'ada'\ndef named():\n    return name()\n$$"
    )
    alone.sql(created).succeeded()
    assert alone.rows("select named() n") == [{"n": "ada"}]
    alone.run("down").succeeded()


ENGINE = """
import snowmelt as sm
from snowmelt.engines import pandas as in_pandas
import pandas

print(in_pandas.call("scaled", pandas.Series(range(3))).tolist())
print(in_pandas.call("loads", pandas.Series(range(3))).tolist())
"""


def test_state_and_log_of_a_function_in_another_engine(alone: Snowmelt, tmp_path: Path) -> None:
    alone.run("up").succeeded()
    alone.run("udf", "add", file(tmp_path, SCALED)).succeeded()
    assert alone.python(ENGINE).succeeded().out.splitlines() == ["[0, 10, 20]", "[1, 1, 1]"]
    alone.run("down").succeeded()


PRINTS = """
import sys
import snowmelt as sm

@sm.udf
def noisy(n: int) -> int:
    print("number", n)
    print("error", n, file=sys.stderr)
    return n
"""


def test_what_instances_print_is_kept_by_function_and_tenant(
    alone: Snowmelt, tmp_path: Path
) -> None:
    path = file(tmp_path, PRINTS)
    alone.run("up").succeeded()
    alone.run("udf", "log", "noisy").failed_with("SM-0220")
    alone.run("udf", "add", path).succeeded()
    assert "has written nothing" in alone.run("udf", "log", "noisy").succeeded().err
    for number in (1, 2):
        alone.sql(f"select noisy({number})").succeeded()
    data = tmp_path / "data.csv"
    data.write_text("n\n3\n")
    alone.sql(f"select noisy(n) from '{data}'").succeeded()
    shown = alone.run("udf", "log", "NOISY").succeeded().out.splitlines()
    assert [line.split()[0] for line in shown] == ["==>", "number", "error"] * 3
    assert [line for line in shown if "==>" not in line][-2:] == ["number 3", "error 3"]
    last = alone.run("udf", "log", "noisy", "--tail", "1", "-o", "json").succeeded().out
    entry = json.loads(last)
    assert entry["text"] == "error 3\n" and entry["query"].startswith("q-")
    # A query that brings the function along is none of the registered one.
    alone.sql("select noisy(4)", "--udf", path).succeeded()
    assert "number 4" not in alone.run("udf", "log", "noisy").succeeded().out
    # Another tenant has neither the function nor its log.
    alone.run("udf", "log", "noisy", "--tenant", "other").failed_with("SM-0220")
    alone.run("udf", "rm", "noisy").succeeded()
    alone.run("udf", "add", path).succeeded()
    assert alone.run("udf", "log", "noisy").succeeded().out == ""
    alone.run("down").succeeded()
