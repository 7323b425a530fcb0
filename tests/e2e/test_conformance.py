"""`docs/reference/udf-conformance.md` says what engines do: types and errors, in each engine.

`UPDATE_UDF_CONFORMANCE=1 python -m pytest tests/e2e/test_conformance.py` writes what is found. A
value that is wrong fails also then.
"""

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conformance_document import check
from conformance_engines import ENGINES, Engine, by_spark, cell, refusal, text_of
from conformance_types import CASES, Case, same
from spark_session import session
from suites import warm_server

import snowmelt as sm
from snowmelt.engines import Remote

NAMES = [*ENGINES, "Spark"]


@pytest.fixture(scope="module")
def spark() -> Iterator[Engine]:
    pytest.importorskip("pyspark")
    # Times without a zone stay without one when Spark reads a table.
    with session(**{"spark.sql.timestampType": "TIMESTAMP_NTZ"}) as made:
        yield by_spark(made)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(name: str, request: pytest.FixtureRequest) -> Engine:
    return request.getfixturevalue("spark") if name == "Spark" else ENGINES[name]


@pytest.fixture(autouse=True)
def server(nothing_left: None, shared_folder: Path) -> Iterator[None]:
    with warm_server(shared_folder):
        yield


def result(engine: Engine, case: Case) -> str:
    """A cell: all values of a column, and a table without rows."""
    column = case.column
    numbers = pa.array(range(len(column)))
    try:
        called = case.function("arrow", same)
        table = pa.table({"n": numbers, "x": column})
        found = engine(called, table)
        assert len(engine(called, table.slice(0, 0))) == 0
    except BaseException as error:
        # A panic of an engine is not an `Exception`.
        return refusal(error)
    return cell(found, case.expected())


def each(cells: Callable[[Case], str]) -> dict[str, str]:
    """The cells of all types; the values that are wrong are told together."""
    found, wrong = {}, []
    for case in CASES:
        try:
            found[case.label] = cells(case)
        except Exception as error:
            wrong.append(f"{case.label}: {type(error).__name__}: {text_of(error)}")
    assert not wrong, "\n".join(wrong)
    return found


def test_each_type_keeps_its_values_or_is_refused(name: str, engine: Engine) -> None:
    check("Table of types", name, each(lambda case: result(engine, case)))


@pytest.mark.parametrize("form", ["scalar", "arrow", "pandas", "numpy"])
def test_each_form_of_batch_keeps_values_or_refuses_them(form: str) -> None:
    def result(case: Case) -> str:
        try:
            with Remote(case.function(form, same), instances=1) as called:
                arrays = [called(chunk) for chunk in case.column.chunks]
        except Exception as error:
            return refusal(error)
        return cell(pa.chunked_array(arrays), case.expected(), nan_for_null=form == "numpy")

    check("Forms of batches", form, each(result))


# What each of the functions does, and the code that the caller is told.


@sm.udf(name="same")
def raises(n: int) -> int:
    raise ValueError("of the user")  # The line that errors name.


@sm.udf(name="same")
def returns_text(n: int) -> int:
    return "text"  # type: ignore[return-value]


@sm.udf(name="same", batch="arrow")
def returns_one_more(n: int) -> int:
    import pyarrow

    return pyarrow.array([1] * (len(n) + 1))  # type: ignore[no-any-return, arg-type]


@sm.udf(name="same", timeout="1s")
def sleeps(n: int) -> int:
    import time

    time.sleep(600)
    return n


@sm.udf(name="same", memory="128MiB")
def takes_memory(n: int) -> int:
    return len(bytearray(1 << 30))


@sm.udf(name="same")
def exits(n: int) -> int:
    import os

    os._exit(3)


@sm.udf(name="same")
def crashes(n: int) -> int:
    import ctypes

    # The first process of a sandbox is not ended by a signal that it sends itself.
    ctypes.string_at(0)
    return n


@sm.udf(name="same")
def works(n: int) -> int:
    return n


FAILURES = {
    "raises an exception": (raises, "SM-0201"),
    "returns a value of another type": (returns_text, "SM-0202"),
    "returns too many values": (returns_one_more, "SM-0203"),
    "does not end in its time": (sleeps, "SM-0212"),
    "needs more memory than its limit": (takes_memory, "SM-0213"),
    "exits": (exits, "SM-0210"),
    "crashes": (crashes, "SM-0211"),
}


def failure(engine: Engine, called: Any, code: str) -> str:
    """The exception that the engine raises; it must name the code, and the line if there is one."""
    table = pa.table({"n": pa.array([1, 2]), "x": pa.array([1, 2])})
    with pytest.raises(Exception) as failed:
        engine(called, table)
    error, text = failed.value, text_of(failed.value)
    assert code in text, f"{code} is not in: {text}"
    if code == "SM-0201":
        assert "ValueError: of the user" in text, text
        line = raises.function.__code__.co_firstlineno + 2
        assert re.search(rf"test_conformance\.py:{line} in raises\(\)", text), text
    module = type(error).__module__.partition(".")[0].lstrip("_")
    kind = type(error).__qualname__
    return f"`{kind}`" if module == "builtins" else f"`{module}.{kind}`"


def test_each_failure_has_its_code_in_each_engine(name: str, engine: Engine) -> None:
    found = {}
    for label, (called, code) in FAILURES.items():
        found[f"{label} ({code})"] = failure(engine, called, code)
        # The engine goes on: another call succeeds.
        table = pa.table({"n": pa.array([1, 2]), "x": pa.array([1, 2])})
        assert engine(works, table).to_pylist() == [1, 2], label
    # The traces of the exceptions refer to queries, which have files.
    gc.collect()
    check("Errors", name, found)
