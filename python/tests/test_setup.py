"""`@sm.setup`: runs once in each process, before the first call of an instance."""

import base64
import json
import pickle
import socket
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from peer import Instance, Refused, answer

import snowmelt as sm
from snowmelt import _ship
from snowmelt._runtime import code, frames

RUNS: list[str] = []

COUNTING = """
    import snowmelt as sm

    runs = []

    @sm.setup
    def first():
        runs.append("first")
        return {"scale": 10}

    @sm.setup
    def second():
        runs.append("second")
        return first()["scale"] + 1

    @sm.udf
    def scaled(n: int) -> int:
        return n * second()

    @sm.udf
    def ran(n: int) -> str:
        return " ".join(runs)

    def handler(event):
        return [second(), runs]
"""


@sm.setup
def shared() -> list[int]:
    RUNS.append("shared")
    return [1, 2, 3]


@sm.udf
def picks(n: int) -> int:
    return shared()[n]


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(values)})


def test_the_state_is_loaded_once_for_all_batches_and_connections(own_instance: Instance) -> None:
    code = own_instance.source(COUNTING)
    batches = [numbers(n, n + 1) for n in range(10)]
    assert own_instance.udf(code, "scaled", *batches).to_pylist()[:3] == [0, 11, 11]
    for _ in range(3):
        assert own_instance.udf(code, "ran", *batches).unique().to_pylist() == ["first second"]
    assert own_instance.call(code, None) == [11, ["first", "second"]]


def test_an_instance_says_how_long_the_set_up_took(own_instance: Instance) -> None:
    code = own_instance.source(
        "import time\n" + "import snowmelt as sm\n@sm.setup\ndef slow():\n    time.sleep(0.01)\n"
        "def handler(event): return 1\n"
    )
    first, second = (said(own_instance, code) for _ in range(2))
    assert first["setup_us"] >= 10_000
    assert "setup_us" not in second


def said(instance: Instance, code: str) -> dict[str, int]:
    """The word of an instance that its code is loaded."""
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(60)
    connected.connect(str(instance.folder / "channel"))
    connection = frames.Connection(connected)
    load = {"mode": "function", "code": code, "function": "handler", "on_error": "raise"}
    connection.send_json(frames.LOAD, load)
    found: dict[str, int] = json.loads(answer(connection, frames.READY))
    return found


def test_the_state_of_a_sent_function_is_loaded_where_it_runs(own_instance: Instance) -> None:
    code = own_instance.pickled(picks)
    assert own_instance.udf(code, "picks", numbers(0, 2), numbers(1)).to_pylist() == [1, 3, 2]
    assert RUNS == [], "the caller loads nothing"


def test_a_set_up_that_fails_is_reported_with_its_line(own_instance: Instance) -> None:
    code = own_instance.source(
        """
        import snowmelt as sm

        @sm.setup
        def model():
            return open("/no/such/model").read()

        @sm.udf
        def score(n: int) -> int:
            return len(model())
        """
    )
    # It runs again for the next connection.
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            own_instance.udf(code, "score", numbers(1))
        failure = refused.value.failure
        assert (failure["kind"], failure["function"]) == ("setup", "score")
        assert failure["location"] == {"file": "udfs.py", "line": 6, "within": "model()"}
        assert "FileNotFoundError" in failure["exception"]


@sm.setup(shared=True)
def for_all() -> int:
    return 7


@sm.udf
def times(n: int) -> int:
    return n * for_all()


def test_a_pickle_says_whether_it_has_a_shared_set_up() -> None:
    code, broadcasts = _ship.pickled(times, "times")
    assert code["shared_setup"] is True and not broadcasts
    assert "shared_setup" not in _ship.pickled(picks, "picks")[0]
    sent = pickle.loads(base64.b64decode(_ship.pickled(for_all, "for_all")[0]["data"]))
    assert sent.shared


def test_a_zygote_runs_the_shared_set_ups_and_those_that_they_use(tmp_path: Path) -> None:
    text = textwrap.dedent("""
        import snowmelt as sm

        @sm.setup
        def used(): return 2

        @sm.setup
        def unused(): return 3

        @sm.setup(shared=True)
        def model(): return used() + 1

        def handler(event): return [model(), used.is_done, unused.is_done]
    """)
    path = tmp_path / "code.json"
    path.write_text(json.dumps({"kind": "source", "file": "udfs.py", "text": text}))
    loaded = code.load(str(path), "")
    loaded.set_up("", shared_only=True)
    assert loaded.names["handler"](None) == [3, True, False]
    # An instance that is forked from it runs the rest.
    loaded.set_up("handler")
    assert loaded.names["handler"](None) == [3, True, True]


def test_a_description_of_the_functions_runs_no_set_up(own_instance: Instance) -> None:
    code = own_instance.source(COUNTING + "\n    assert not runs\n")
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(60)
        connected.connect(str(own_instance.folder / "channel"))
        connection = frames.Connection(connected)
        load = {"mode": "describe", "code": code, "function": "", "on_error": "raise"}
        connection.send_json(frames.LOAD, load)
        assert "setup_us" not in json.loads(answer(connection, frames.READY))
        assert len(json.loads(answer(connection, frames.RETURN))) == 2
    # Those that load the code for calls do.
    assert "setup_us" in said(own_instance, code)


def test_threads_of_a_program_share_one_run() -> None:
    runs, wait = [], threading.Barrier(4)

    @sm.setup
    def state() -> object:
        runs.append(1)
        return object()

    def use(_: int) -> object:
        wait.wait(60)
        return state()

    with ThreadPoolExecutor(4) as pool:
        states = list(pool.map(use, range(4)))
    assert len(set(map(id, states))) == 1 and runs == [1]


def test_state_is_never_sent_with_the_function() -> None:
    shared()
    assert RUNS.pop() == "shared"
    copied = pickle.loads(pickle.dumps(sm.setup(list)))
    assert not copied.is_done and copied() == []


def test_a_set_up_without_parameters_is_required() -> None:
    with pytest.raises(TypeError, match="has parameters"):
        sm.setup(lambda path: path)  # type: ignore[arg-type,misc]
    with pytest.raises(TypeError, match="stands before a function"):
        sm.setup(7)  # type: ignore[call-overload]

    @sm.setup
    def own() -> int:
        return own()

    with pytest.raises(RecursionError, match="its own result"):
        own()
