"""End to end: this package, the real binary, real sandboxes. Skipped if it is not built."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from peer import PACKAGE_FOLDER, PATIENCE_SECONDS, run_program

import snowmelt as sm
from snowmelt import _server

pytestmark = pytest.mark.usefixtures("platform")

ROWS = 10_000


@pytest.fixture(scope="module")
def platform(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_server.Server]:
    """A private platform with its own state folder."""
    state = tmp_path_factory.mktemp("state")
    # Sandboxes read code and packages below it with their own user ids.
    state.chmod(0o755)
    patch = pytest.MonkeyPatch()
    patch.setenv("SNOWMELT_STATE", str(state))
    patch.delenv("SNOWMELT_SOCKET", raising=False)
    patch.setenv("SNOWMELT_BIN", binary)
    _server._stop_at_exit()
    yield _server.current()
    _server._stop_at_exit()
    patch.undo()


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Parquet files with a known content."""
    folder = tmp_path_factory.mktemp("sales")
    for part in range(3):
        numbers = pa.array(range(part, ROWS, 3))
        names = pa.array([None if n % 10 == 0 else f"name {n % 7}" for n in numbers.to_pylist()])
        pq.write_table(pa.table({"n": numbers, "name": names}), folder / f"{part}.parquet")
    return str(folder)


@sm.udf
def halved(n: int) -> float:
    return n / 2


@sm.udf
def initial(name: str) -> str | None:
    return name[-1:]


@sm.udf(on_error="null")
def inverse(n: int) -> float:
    return 1 / n


@sm.udf
def picky(n: int) -> int:
    if n >= 9_990:
        raise ValueError(f"{n} is too much")
    return n


@sm.udf
def doubled(n: sm.Series[int]) -> sm.Series[int]:
    return n * 2


def test_a_query_over_files_answers_in_every_form(sales: str) -> None:
    query = sm.sql(
        "select n % 2 as odd, count(*) as rows, sum(n) as total from sales group by 1 order by 1",
        sales=sales,
        workers=2,
    )
    expected = [(0, 5_000, 24_995_000), (1, 5_000, 25_000_000)]
    assert query.rows() == expected
    assert query.collect().column_names == ["odd", "rows", "total"]
    assert query.pandas().values.tolist() == [list(row) for row in expected]
    assert query.polars().rows() == expected
    assert query.profile is not None and query.profile["rows"] == 2
    assert query.query_id and query.query_id.startswith("q-")


@sm.udf
def spun(n: int) -> int:
    return n + sum(range(2_000)) % 2


def test_the_profile_separates_function_time_from_operator_time(sales: str) -> None:
    query = sm.sql(
        "select spun(n) % 2 as odd, count(*) from sales group by 1", sales=sales, workers=2
    )
    query.collect()
    profile = query.profile
    assert profile is not None
    phases = profile["phases"]
    assert [phase["phase"] for phase in phases] == ["packages", "plan", "start", "run", "merge"]
    # They add up to the wall time.
    ends = [phase["to_us"] for phase in phases]
    assert [phase["from_us"] for phase in phases] == [0, *ends[:-1]]
    assert ends[-1] == profile["wall_us"]
    lanes = {lane["name"]: lane for lane in profile["lanes"]}
    functions = [lane for name, lane in lanes.items() if name.startswith("spun ")]
    assert sum(lane["rows"] for lane in functions) == 10_000
    assert all(lane["cpu_us"] > 0 for lane in functions)
    # A task runs only when its function is ready. The stage that adds up calls no function.
    callers = [name.replace("spun", "worker") for name in lanes if name.startswith("spun ")]
    for name in callers:
        lane, beside = lanes[name], lanes[name.replace("worker", "spun")]
        assert lane["ready_us"] <= lane["began_us"] and beside["ready_us"] <= lane["began_us"]
    assert len(callers) < len(lanes) - len(callers)
    (called,) = [op for op in profile["operators"] if op["name"] == "UDF: spun"]
    assert called["rows"] == 10_000
    others = [op["compute_nanos"] for op in profile["operators"] if op is not called]
    assert called["compute_nanos"] > max(others), profile["operators"]


@pytest.mark.parametrize("form", ["pandas", "polars", "pyarrow", "dataset"])
def test_frames_are_tables(form: str) -> None:
    data = {"k": ["a", "b", "a"], "v": [1.5, None, 2.5]}
    made = {
        "pandas": lambda: pd.DataFrame(data),
        "polars": lambda: pl.DataFrame(data),
        "pyarrow": lambda: pa.table(data),
        "dataset": lambda: pa.dataset.dataset(pa.table(data)),
    }
    frame = made[form]()
    query = sm.sql("select k, sum(v) from frame group by k order by k")
    assert query.rows() == [("a", 4.0), ("b", None)]
    assert len(data) == 2 and frame is not None


def test_frames_come_back_with_their_types() -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([2**60 + 1, None], "Int64"),
            "b": pd.array([True, None], "boolean"),
            "c": pd.Categorical(["lo", None], categories=["mid", "lo"], ordered=True),
        },
        index=pd.Index(["k", "l"], name="key"),
    )
    back = sm.sql("select * from frame order by key").pandas().set_index("key")
    pd.testing.assert_frame_equal(back, frame, check_index_type=False)
    enum = pl.DataFrame({"e": pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"]))})
    assert sm.sql("select e from enum").polars().schema == enum.schema


def test_functions_of_the_caller_are_called(sales: str) -> None:
    query = sm.sql(
        "select initial(name) as i, sum(halved(n)) as h from s group by 1 order by 1 nulls last",
        s=sales,
        workers=2,
    )
    expected: dict[str | None, float] = {}
    for n in range(ROWS):
        key = None if n % 10 == 0 else str(n % 7)
        expected[key] = expected.get(key, 0.0) + n / 2
    rows = query.rows()
    assert dict(rows) == expected
    assert [row[0] for row in rows] == [*"0123456", None]


def test_the_library_of_a_batch_function_is_installed(sales: str) -> None:
    assert sm.sql("select sum(doubled(n)) from s", s=sales).rows() == [(ROWS * (ROWS - 1),)]


def test_signatures_are_read_from_a_file_of_functions(sales: str, tmp_path: Path) -> None:
    file = tmp_path / "udfs.py"
    file.write_text(
        "import snowmelt as sm\n"
        "@sm.udf(packages=['six==1.16.0'])\n"
        "def shout(name: str) -> str:\n"
        "    import six\n"
        "    return name.upper() + six.__version__\n"
    )
    query = sm.sql("select shout(name) from s where n = 1", s=sales, udfs=[file])
    assert query.rows() == [("NAME 11.16.0",)]


def test_functions_of_one_file_may_have_conflicting_packages(sales: str, tmp_path: Path) -> None:
    file = tmp_path / "udfs.py"
    file.write_text(
        "import snowmelt as sm\n"
        "@sm.udf(packages=['six==1.16.0'])\n"
        "def older(name: str) -> str:\n"
        "    import six\n"
        "    return six.__version__\n"
        "@sm.udf(packages=['six==1.17.0'])\n"
        "def newer(name: str) -> str:\n"
        "    import six\n"
        "    return six.__version__\n"
    )
    query = "select distinct older(name) as a, newer(name) as b from s where name is not null"
    for _ in range(2):
        assert sm.sql(query, s=sales, udfs=[file]).rows() == [("1.16.0", "1.17.0")]
    file.write_text(file.read_text().replace("1.17.0", "999"))
    with pytest.raises(sm.PackageError) as failed:
        sm.sql(query, s=sales, udfs=[file]).collect()
    assert failed.value.code == "SM-0301"
    assert "six==999" in failed.value.message and "1.16.0" not in failed.value.message


HOST_PACKAGES = "import json, site; print(json.dumps(site.getsitepackages()))"


def test_packages_of_the_host_are_hidden() -> None:
    @sm.function
    def look(event: object) -> object:
        asked = [sys.executable, "-c", HOST_PACKAGES]
        folders = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout)
        found = {folder: os.listdir(folder) for folder in folders if os.path.isdir(folder)}
        imports = subprocess.run([sys.executable, "-c", "import pip"], capture_output=True)
        return found, imports.returncode

    base = os.path.realpath(sys.executable)
    asked = subprocess.run([base, "-I", "-c", HOST_PACKAGES], stdout=subprocess.PIPE, check=True)
    there = [folder for folder in json.loads(asked.stdout) if os.path.isdir(folder)]
    assert any(os.listdir(folder) for folder in there), "the host has packages"
    found, imported = look.remote(None)
    assert imported != 0
    assert set(there) <= set(found) and not any(found.values()), found


def wheel(folder: Path, text: str) -> str:
    """A wheel with one module, as a user would build it."""
    name = "own_pkg-1.0-py3-none-any.whl"
    info = "own_pkg-1.0.dist-info"
    files = {
        "own_pkg.py": text,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: own_pkg\nVersion: 1.0\n"
        "Requires-Dist: six==1.16.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    folder.mkdir()
    with zipfile.ZipFile(folder / name, "w") as made:
        record = ""
        for path, content in files.items():
            made.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest())
            record += f"{path},sha256={digest.rstrip(b'=').decode()},{len(content)}\n"
        made.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return str(folder / name)


def test_an_uploaded_wheel_is_identified_by_its_content(sales: str, tmp_path: Path) -> None:
    def version(item: int) -> object:
        import own_pkg
        import six

        return [own_pkg.VALUE, six.__version__, item]

    for value in (1, 2):
        given = wheel(tmp_path / str(value), f"VALUE = {value}\n")
        assert sm.map(version, [7], packages=[given]) == [[value, "1.16.0", 7]]

        @sm.udf(packages=[given])
        def own(n: int) -> int:
            import own_pkg

            return int(own_pkg.VALUE) + n

        assert sm.sql("select min(own(n)) from s", s=sales).rows() == [(value,)]
    with pytest.raises(sm.PackageError, match=r"the wheel .*none-any.whl cannot be read"):
        sm.map(version, [1], packages=[str(tmp_path / "none-1-py3-none-any.whl")])
    broken = tmp_path / "own_pkg-2.0-py3-none-any.whl"
    broken.write_bytes(b"no zip")
    with pytest.raises(sm.PackageError):
        sm.map(version, [1], packages=[str(broken)])


def test_an_invalid_count_is_also_refused_by_the_server(sales: str) -> None:
    query = sm.sql("select 1 from s", s=sales)
    query._options["workers"] = -1
    with pytest.raises(sm.QueryError, match=r"`options\.workers` of the request is integer `-1`"):
        query.collect()


def test_results_of_map_are_plain_data_unless_pickles_are_requested() -> None:
    def framed(item: int) -> object:
        return {"frame": pd.DataFrame({"n": [item]}), "when": datetime.date(2024, 1, item)}

    [answer] = sm.map(framed, [3], packages=["pandas"])
    assert answer["when"] == datetime.date(2024, 1, 3)
    pd.testing.assert_frame_equal(answer["frame"], pd.DataFrame({"n": [3]}))
    assert sm.burst(lambda rank: {rank}, 2) == [{0}, {1}]
    [refused] = sm.map(lambda item: OwnError, [1], on_error="return")
    assert refused.code == "SM-0202" and 'results="pickle"' in refused.hint
    [trusted] = sm.map(lambda item: OwnError, [1], results="pickle")
    assert trusted is OwnError


def test_null_on_error_and_the_error_itself(sales: str) -> None:
    assert sm.sql("select count(inverse(n)) from s", s=sales).rows() == [(ROWS - 1,)]
    with pytest.raises(sm.FunctionError) as failed:
        sm.sql("select sum(picky(n)) from s", s=sales).collect()
    error = failed.value
    assert error.code == "SM-0201"
    assert "`picky` failed in" in error.message
    assert "is too much" in str(error) and "raise ValueError" in str(error)
    assert error.report["location"]["file"] == __file__
    assert error.query_id


def test_wrong_queries_are_query_errors(sales: str) -> None:
    for text, code in [
        ("selec 1 from s", "SM-0101"),
        ("select nme from s", "SM-0102"),
        ("select * from s, nowhere", "SM-0102"),
        ("select halved(name) from s", "SM-0103"),
    ]:
        with pytest.raises(sm.QueryError) as failed:
            sm.sql(text, s=sales).collect()
        assert failed.value.code == code, text
    with pytest.raises(sm.QueryError) as failed:
        sm.sql("select 1 from s", s="/nonexistent/folder").collect()
    assert failed.value.code == "SM-0105"


def test_batches_are_streamed_and_can_be_abandoned(sales: str) -> None:
    query = sm.sql("select n from s", s=sales)
    assert sum(batch.num_rows for batch in query) == ROWS
    for batch in query.batches():
        assert batch.num_rows > 0
        break
    assert query.collect().num_rows == ROWS


def test_a_query_that_takes_too_long_is_ended(sales: str) -> None:
    @sm.udf
    def slow(n: int) -> int:
        time.sleep(3600)
        return n

    with pytest.raises(sm.QueryError) as failed:
        sm.sql("select slow(n) from s", s=sales, timeout="2s").collect()
    assert failed.value.code == "SM-0112"


def test_functions_are_called_locally_and_remotely() -> None:
    @sm.function(environment={"GREETING": "hello"})
    def greet(event: dict[str, str]) -> dict[str, object]:
        return {"text": f"{os.environ.get('GREETING')} {event['name']}", "pid": os.getpid()}

    assert greet({"name": "you"})["text"] == "None you"
    answer = greet.remote({"name": "you"})
    assert answer["text"] == "hello you" and answer["pid"] != os.getpid()
    waiting = [greet.spawn({"name": str(n)}) for n in range(5)]
    answers = [invocation.get(PATIENCE_SECONDS)["text"] for invocation in waiting]
    assert answers == [f"hello {n}" for n in range(5)]
    with pytest.raises(sm.FunctionError) as failed:
        greet.remote({})
    assert failed.value.code == "SM-0201"
    assert "KeyError: 'name'" in str(failed.value)


def test_a_private_platform_keeps_no_function() -> None:
    @sm.function
    def here(event: object) -> object:
        return event

    with pytest.raises(sm.PlatformError, match="snowmelt up"):
        here.deploy("stays")


class OwnError(Exception):
    """An exception of this module."""


def squared(item: int) -> int:
    if item == 13:
        raise OwnError(item)
    return item * item


def test_map_keeps_order_over_many_sandboxes() -> None:
    assert sm.map(squared, range(12), workers=3, chunk=2) == [n * n for n in range(12)]
    assert sm.map(squared, []) == []
    assert sm.map(lambda item: {item}, "ab") == [{"a"}, {"b"}]


def test_map_raises_errors_at_the_end_or_returns_them() -> None:
    outcomes = sm.map(squared, range(12, 15), chunk=1, on_error="return")
    assert (outcomes[0], outcomes[2]) == (144, 196)
    assert isinstance(outcomes[1], sm.FunctionError) and "OwnError: 13" in outcomes[1].message
    trusted = sm.map(squared, range(12, 15), on_error="return", results="pickle")
    assert isinstance(trusted[1], OwnError) and trusted[1].args == (13,)
    with pytest.raises(sm.MapError) as failed:
        sm.map(squared, range(12, 15))
    assert [index for index, _ in failed.value.errors] == [1]
    assert failed.value.results == [144, None, 196]
    assert "failed for 1 of 3 items, first for item 1" in str(failed.value)


def test_the_end_of_a_sandbox_fails_only_its_chunk() -> None:
    def leaving(item: int) -> int:
        if item == 2:
            os._exit(3)
        return item

    outcomes = sm.map(leaving, range(4), chunk=1, on_error="return")
    assert [outcomes[n] for n in (0, 1, 3)] == [0, 1, 3]
    assert isinstance(outcomes[2], sm.FunctionError) and outcomes[2].code == "SM-0210"


def test_exceeding_the_memory_limit_is_reported() -> None:
    def greedy(item: int) -> int:
        # Written to, because untouched memory is not counted.
        return len(b"x" * (1 << 30)) + item

    (outcome,) = sm.map(greedy, [1], memory="128MiB", on_error="return")
    assert isinstance(outcome, sm.FunctionError) and outcome.code == "SM-0213"


def test_packages_are_installed_and_wrong_ones_reported() -> None:
    def version(item: int) -> str:
        import six

        return str(six.__version__)

    assert sm.map(version, [1], packages=["six==1.16.0"]) == ["1.16.0"]
    with pytest.raises(sm.PackageError) as failed:
        sm.map(version, [1], packages=["six==999"])
    assert failed.value.code == "SM-0301"


def test_threads_share_the_platform(sales: str) -> None:
    totals: list[object] = []

    def count() -> None:
        totals.append(sm.sql("select count(*) from s", s=sales, workers=1).rows())

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [[(ROWS,)]] * 3


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False


LATER = """
import os, sys, signal, snowmelt as sm
from snowmelt import _server
print(sm.map(abs, [-1], workers=1))
server = _server.current()
print(server._process.pid, flush=True)
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "os._exit(4)", "os.kill(os.getpid(), 9)"])
def test_the_private_platform_ends_with_the_program(end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATER + end],
        env={**os.environ, "PYTHONPATH": str(PACKAGE_FOLDER)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    printed = done.stdout.split("\n")
    assert printed[0] == "[1]"
    assert _gone(int(printed[1]))


def test_a_forked_child_has_its_own_platform() -> None:
    program = LATER + textwrap.dedent(
        """
        child = os.fork()
        if child == 0:
            print(_server._current, sm.map(abs, [-2]), _server.current()._process.pid != server._process.pid)
            _server._stop_at_exit()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        print(sm.map(abs, [-3]), _server.current() is server)
        """
    )
    lines = run_program(program).splitlines()
    assert lines[2:] == ["None [2] True", "[3] True"]


def test_an_interrupt_cancels_the_query_and_the_program_continues(sales: str) -> None:
    program = textwrap.dedent(
        f"""
        import time, sys, snowmelt as sm
        @sm.udf
        def slow(n: int) -> int:
            time.sleep(3600)
        sm.sql("select count(*) from s", s={sales!r}, workers=1).collect()
        try:
            print("ready", flush=True)
            sm.sql("select slow(n) from s", s={sales!r}, workers=1).collect()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print(sm.sql("select count(*) from s", s={sales!r}, workers=1).rows())
        """
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(PACKAGE_FOLDER)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    # At any moment of the query: before, during or after its start.
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=PATIENCE_SECONDS)
    assert out == f"interrupted\n[({ROWS},)]\n"


def test_the_command_line_can_be_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "snowmelt", "--version"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE_FOLDER)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.startswith("snowmelt ")
