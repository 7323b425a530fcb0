"""Functions that are sent by value, from this process into a real instance."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from peer import Instance, Refused

import snowmelt as sm
from snowmelt import _ship
from snowmelt._vendor import cloudpickle

RATE = 3


def _times(v: int) -> int:
    return v * RATE


@sm.udf
def tripled(v: int) -> int:
    return _times(v)


@sm.udf
def factorial(v: int) -> int:
    return v * factorial(v - 1) if v > 1 else 1


@sm.udf
def failing(v: int) -> float:
    return _fail(v)


def _fail(v: int) -> float:
    return 1 / (v - v)


ONE = pa.record_batch({"v": [5]})


def test_functions_are_sent_with_helpers_and_constants(instance: Instance) -> None:
    assert instance.udf(instance.pickled(tripled), "tripled", ONE).to_pylist() == [15]
    assert instance.udf(instance.pickled(factorial), "factorial", ONE).to_pylist() == [120]


def test_closures_and_lambdas_can_be_sent(instance: Instance) -> None:
    more = 4
    added = sm.udf(args=[int], returns=int, name="added")(lambda v: v + more)
    assert instance.udf(instance.pickled(added), "added", ONE).to_pylist() == [9]
    assert instance.call(instance.pickled(lambda event: event["a"] + more), {"a": 1}) == 5


def test_tracebacks_show_the_lines_of_pickled_functions(instance: Instance) -> None:
    with pytest.raises(Refused) as refused:
        instance.udf(instance.pickled(failing), "failing", ONE)
    failure = refused.value.failure
    assert failure["location"]["file"] == __file__
    assert failure["location"]["within"] == "_fail()"
    assert failure["traceback"][-3:] == [
        f"{__file__}:{failure['location']['line']} in _fail()",
        "    return 1 / (v - v)",
        "ZeroDivisionError: division by zero",
    ]


def test_the_users_own_modules_are_sent_but_installed_ones_are_not(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_helpers.py").write_text(
        "import json\nclass Box:\n    def __init__(self, v): self.v = v\n"
        "def boxed(v): return Box(json.dumps(v))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    helpers = importlib.import_module("own_helpers")
    code = instance.pickled(lambda item: helpers.boxed(item))
    ((good, box),) = instance.map(code, [[1]], results="pickle")
    # The returned class is the same as the sent one.
    assert good and type(box) is helpers.Box and box.v == "[1]"
    data = cloudpickle.dumps(pytest.raises)
    assert b"own_helpers" not in data and len(data) < 200
    assert helpers.__name__ not in cloudpickle.list_registry_pickle_by_value()
    del sys.modules["own_helpers"]


def test_a_udf_is_sent_with_its_signature(instance: Instance) -> None:
    # Annotations of this module are strings and are not evaluated again where the function runs.
    @sm.udf(timeout=5)
    def f(v: sm.Array[int]) -> sm.Array[int]:
        return v

    assert instance.udf(instance.pickled(f), "f", ONE).to_pylist() == [5]


def test_an_unpicklable_function_is_refused_locally() -> None:
    lock = threading.Lock()
    with pytest.raises(sm.FunctionError) as refused:
        _ship.pickled(lambda: lock, "locked")
    assert refused.value.code == "SM-0204"
    assert "`locked` cannot be sent" in refused.value.message


def test_exceptions_keep_their_own_class(instance: Instance) -> None:
    class OwnError(Exception):
        pass

    def f(item: int) -> None:
        raise OwnError(item, "told")

    ((good, error),) = instance.map(instance.pickled(f), [3], results="pickle")
    assert not good
    assert type(error) is OwnError and error.args == (3, "told")
