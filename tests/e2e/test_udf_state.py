"""State that instances load once (`@sm.setup`), and the logs of registered functions."""

import json
from pathlib import Path

import pytest
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
ROWS = "(select range as value from range(0, 40000))"


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


SHARED = """
import threading
import time
import uuid
import pyarrow as pa
import snowmelt as sm
from snowmelt.engines import Remote

@sm.setup(shared=True)
def model():
    time.sleep(0.01)
    return str(uuid.uuid4())

@sm.setup
def own():
    return str(uuid.uuid4())

@sm.setup(shared=True)
def starts_a_thread():
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return str(uuid.uuid4())

@sm.udf
def of_model(n: int) -> str:
    return model()

@sm.udf
def of_both(n: int) -> str:
    return model() + own()

@sm.udf
def with_thread(n: int) -> str:
    return starts_a_thread()

def distinct(function):
    # Three instances at once: each of these has one of its own.
    called = [Remote(function, instances=1) for _ in range(3)]
    try:
        return len({one(pa.array([0]))[0].as_py() for one in called})
    finally:
        for one in called:
            one.close()

if __name__ == "__main__":
    print([distinct(function) for function in (of_model, of_both, with_thread)])
"""


@pytest.mark.alone
def test_instances_share_the_state_of_a_shared_set_up(alone: Snowmelt, tmp_path: Path) -> None:
    alone.run("up").succeeded()
    # One run for all; one in each; one in each too, since a process with threads is not forked.
    assert alone.python(SHARED).succeeded().out.splitlines() == ["[1, 3, 3]"]
    alone.run("down").succeeded()


SHARED_FILE = """
import os
import snowmelt as sm

@sm.setup(shared=True)
def factor():
    return 10 if os.path.exists("/opt/snowmelt/code/code.json") else 0

@sm.udf
def scaled(n: int) -> int:
    return n * factor()
"""


def test_a_shared_set_up_of_a_file_runs_in_a_zygote(alone: Snowmelt, tmp_path: Path) -> None:
    path = file(tmp_path, SHARED_FILE)
    alone.run("up").succeeded()
    assert alone.rows("select scaled(4) s", "--udf", path) == [{"s": 40}]
    alone.run("udf", "add", path).succeeded()
    assert alone.rows("select scaled(5) s") == [{"s": 50}]
    imports = json.loads(alone.run("top", "-o", "json").succeeded().out)["node"]["imports"]
    forked = [zygote["forks"] for zygote in imports["zygotes"] if zygote["set_up"]]
    assert sum(forked) >= 1, imports
    alone.run("down").succeeded()


OF_A_FILE = """
import os
import uuid
import snowmelt as sm

@sm.setup(shared=True)
def model():
    with open("model.txt") as file:
        return file.read() + str(uuid.uuid4())

@sm.udf
def of_model(n: int) -> str:
    return model()
"""

READS_SECRET = """
import snowmelt as sm

@sm.setup(shared=True)
def key():
    return sm.secret("KEY").upper()

@sm.udf
def of_key(n: int) -> str:
    return key()
"""


def test_a_shared_set_up_reads_the_files_of_its_function(alone: Snowmelt, tmp_path: Path) -> None:
    path, model = file(tmp_path, OF_A_FILE), tmp_path / "model.txt"
    alone.run("up").succeeded()
    states = []
    for text in ("first ", "second "):
        model.write_text(text)
        alone.run("udf", "add", path, "--file", model).succeeded()
        rows = [alone.rows("select of_model(1) m", "--workers", "1")[0]["m"] for _ in range(2)]
        assert rows[0] == rows[1] and rows[0].startswith(text)
        states.append(rows[0])
    assert states[0] != states[1]
    imports = json.loads(alone.run("top", "-o", "json").succeeded().out)["node"]["imports"]
    assert sum(zygote["set_up"] for zygote in imports["zygotes"]) >= 1, imports
    alone.run("down").succeeded()


def test_a_zygote_is_never_told_a_secret(tmp_path: Path, alone: Snowmelt) -> None:
    path = file(tmp_path, READS_SECRET)
    alone.environment["A_KEY"] = "sesame"
    alone.run("up").succeeded()
    alone.run("udf", "add", path, "--secret", "KEY=env:A_KEY").succeeded()
    assert alone.rows("select of_key(1) k") == [{"k": "SESAME"}]
    imports = json.loads(alone.run("top", "-o", "json").succeeded().out)["node"]["imports"]
    assert not any(zygote["set_up"] for zygote in imports["zygotes"])
    alone.run("down").succeeded()


SHARED_FAILS = """
import snowmelt as sm

@sm.setup(shared=True)
def model():
    return open("/no/such/model").read()

@sm.udf
def score(n: int) -> int:
    return len(model())
"""


def test_a_shared_set_up_that_fails_is_an_error_of_the_call(
    alone: Snowmelt, tmp_path: Path
) -> None:
    path = file(tmp_path, SHARED_FAILS)
    alone.run("up").succeeded()
    for _ in range(2):
        failed = alone.sql("select score(1)", "--udf", path).failed_with("SM-0207", "`score`")
        assert (failed["location"]["line"], failed["location"]["within"]) == (6, "model()")
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
