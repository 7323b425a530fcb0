"""Scalar UDFs in a real instance: a round trip of every type, nulls, and each kind of failure."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from peer import Caller, Instance, Refused

HEAD = """
import datetime, decimal
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict
import snowmelt as sm

@dataclass
class Point:
    x: int
    y: float | None

class Pair(NamedTuple):
    name: str
    points: list[Point]

class Record(TypedDict):
    day: datetime.date
    tags: list[str]
"""

POINT = pa.struct([("x", pa.int64()), ("y", pa.float64())])


def _word(r: random.Random) -> str:
    return "".join(r.choice("aé漢😀 '\"\\\0") for _ in range(r.randrange(6)))


def _instant(r: random.Random) -> datetime.datetime:
    start = datetime.datetime(1, 1, 1)
    return start + datetime.timedelta(microseconds=r.randrange(9998 * 365 * 86_400 * 10**6))


def _point(r: random.Random) -> dict[str, Any]:
    return {"x": r.randrange(99), "y": r.choice([None, r.random()])}


# annotation, Arrow type, a random value
TYPES: list[tuple[str, pa.DataType, Any]] = [
    ("bool", pa.bool_(), lambda r: r.random() < 0.5),
    ("int", pa.int64(), lambda r: r.choice([-(2**63), 2**63 - 1, 0, r.randrange(-99, 99)])),
    ("Annotated[int, 'int16']", pa.int16(), lambda r: r.randrange(-(2**15), 2**15)),
    ("Annotated[int, 'uint64']", pa.uint64(), lambda r: r.randrange(2**64)),
    ("float", pa.float64(), lambda r: r.choice([0.0, -1e308, float("inf"), r.random()])),
    ("Annotated[float, 'float32']", pa.float32(), lambda r: r.randrange(1000) / 8),
    ("str", pa.string(), _word),
    ("bytes", pa.binary(), lambda r: r.randbytes(r.randrange(5))),
    ("decimal.Decimal", pa.decimal128(38, 10), lambda r: Decimal(r.randrange(10**30)).scaleb(-10)),
    (
        "Annotated[decimal.Decimal, 'decimal(12, 2)']",
        pa.decimal128(12, 2),
        lambda r: Decimal(r.randrange(-(10**12) + 1, 10**12)).scaleb(-2),
    ),
    ("datetime.date", pa.date32(), lambda r: _instant(r).date()),
    ("datetime.datetime", pa.timestamp("us"), _instant),
    ("datetime.time", pa.time64("us"), lambda r: _instant(r).time()),
    (
        "datetime.timedelta",
        pa.duration("us"),
        lambda r: datetime.timedelta(microseconds=r.randrange(-(10**15), 10**15)),
    ),
    ("list[int]", pa.list_(pa.int64()), lambda r: [r.randrange(9) for _ in range(r.randrange(4))]),
    (
        "list[list[str | None]]",
        pa.list_(pa.list_(pa.string())),
        lambda r: [[r.choice([None, "a"]) for _ in range(r.randrange(3))] for _ in range(2)],
    ),
    ("tuple[float, ...]", pa.list_(pa.float64()), lambda r: [r.random()] * r.randrange(3)),
    ("Point", POINT, _point),
    (
        "Pair",
        pa.struct([("name", pa.string()), ("points", pa.list_(POINT))]),
        lambda r: {"name": _word(r), "points": [_point(r) for _ in range(r.randrange(3))]},
    ),
    (
        "Record",
        pa.struct([("day", pa.date32()), ("tags", pa.list_(pa.string()))]),
        lambda r: {"day": _instant(r).date(), "tags": [_word(r)]},
    ),
]


@pytest.fixture(scope="module")
def identities(instance: Instance) -> str:
    """The identity function for each type, not nullable and nullable."""
    text = HEAD
    for number, (annotation, _, _) in enumerate(TYPES):
        text += f"@sm.udf\ndef strict_{number}(v: {annotation}) -> {annotation}:\n"
        text += "    assert v is not None\n    return v\n"
        text += f"@sm.udf\ndef nulls_{number}(v: {annotation} | None) -> {annotation} | None:\n"
        text += "    return v\n"
    return instance.source(text)


@pytest.mark.parametrize("number", range(len(TYPES)), ids=[annotation for annotation, *_ in TYPES])
def test_values_and_nulls_survive(instance: Instance, identities: str, number: int) -> None:
    _, kind, make = TYPES[number]
    r = random.Random(number)
    for rows, nulls in [(0, 0.0), (1, 1.0), (50, 0.0), (200, 0.3)]:
        values = [None if r.random() < nulls else make(r) for _ in range(rows)]
        column = pa.array(values, kind)
        batch = pa.record_batch({"v": column})
        for form in ("strict", "nulls"):
            result = instance.udf(identities, f"{form}_{number}", batch)
            assert result.type == kind
            assert result.to_pylist() == column.to_pylist()


def test_engines_may_send_other_widths_and_slices(instance: Instance) -> None:
    code = instance.source(
        "import snowmelt as sm\n@sm.udf\ndef f(n: int, s: str) -> str: return s * n"
    )
    n, s = pa.array([9, 1, None, 3], pa.int32()), pa.array(["z", "a", "b", "c"], pa.large_string())
    batch = pa.record_batch({"n": n, "s": s}).slice(1)
    assert instance.udf(code, "f", batch).to_pylist() == ["a", None, "ccc"]


def test_functions_without_arguments_are_called_for_each_row(instance: Instance) -> None:
    code = instance.source(
        """
        import itertools, snowmelt as sm
        numbers = itertools.count()
        @sm.udf
        def f() -> int: return next(numbers)
        """
    )
    empty = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    assert instance.udf(code, "f", empty, empty).to_pylist() == [0, 1, 2, 3, 4, 5]


def test_optional_arguments_get_none_and_others_skip_the_row(instance: Instance) -> None:
    code = instance.source(
        """
        import snowmelt as sm
        calls = []
        @sm.udf
        def f(a: int, b: int | None) -> str:
            calls.append((a, b))
            return repr(calls)
        """
    )
    batch = pa.record_batch(
        {"a": [1, None, 3, None], "b": [None, 2, 3, None]}, schema=_ints("a", "b")
    )
    assert instance.udf(code, "f", batch).to_pylist() == [
        "[(1, None)]",
        None,
        "[(1, None), (3, 3)]",
        None,
    ]


def _ints(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in names])


def _refused(instance: Instance, body: str, batch: pa.RecordBatch, **load: Any) -> dict[str, Any]:
    code = instance.source("import snowmelt as sm\n" + body)
    with pytest.raises(Refused) as refused:
        instance.udf(code, "f", batch, **load)
    return refused.value.failure


ONE_TO_FOUR = pa.record_batch({"v": pa.array([1, None, 3, 4])})


def test_a_raise_names_line_input_and_row(instance: Instance) -> None:
    body = (
        "@sm.udf\ndef f(v: int) -> float:\n    return inner(v, [v])\n"
        "def inner(v, more):\n    return 1 / (v - 3)\n"
    )
    failure = _refused(instance, body, ONE_TO_FOUR)
    assert failure["kind"] == "raised" and failure["function"] == "f"
    assert failure["exception"] == "ZeroDivisionError: division by zero"
    assert failure["location"] == {"file": "udfs.py", "line": 6, "within": "inner()"}
    assert failure["traceback"] == [
        "udfs.py:4 in f()",
        "    return inner(v, [v])",
        "udfs.py:6 in inner()",
        "    return 1 / (v - 3)",
        "ZeroDivisionError: division by zero",
    ]
    assert (failure["row"], failure["input"]) == (2, "v = 3")
    assert (failure["failed"], failure["calls"]) == (1, 3)
    assert "on_error" in failure["hint"]


def test_frames_of_libraries_are_hidden(instance: Instance) -> None:
    body = "import json\n@sm.udf\ndef f(v: int) -> int: return json.loads('{')\n"
    failure = _refused(instance, body, ONE_TO_FOUR)
    assert failure["location"] == {"file": "udfs.py", "line": 4, "within": "f()"}
    assert len(failure["traceback"]) == 2
    assert failure["traceback"][0] == "def f(v: int) -> int: return json.loads('{')"
    assert failure["traceback"][1].startswith("JSONDecodeError: ")


def test_failures_are_counted_and_the_count_is_bounded(instance: Instance) -> None:
    batch = pa.record_batch({"v": pa.array(range(1000))})
    body = "@sm.udf\ndef f(v: int) -> int:\n    if v % {}: return v\n    raise ValueError(v)\n"
    few = _refused(instance, body.format(300), batch)
    assert (few["failed"], few["calls"], few["row"]) == (4, 1000, 0)
    many = _refused(instance, body.format(2), batch)
    assert (many["failed"], many["calls"]) == (100, 199)


def test_null_on_error_keeps_the_other_rows(instance: Instance) -> None:
    code = instance.source(
        "import snowmelt as sm\n@sm.udf(on_error='null')\ndef f(v: int) -> int: return 12 // (v - 3)"
    )
    assert instance.udf(code, "f", ONE_TO_FOUR, on_error="null").to_pylist() == [-6, None, None, 12]


def test_every_exception_is_a_failure_of_the_call_only(instance: Instance) -> None:
    for exception in ("KeyboardInterrupt", "StopIteration", "GeneratorExit", "RecursionError"):
        body = f"@sm.udf\ndef f(v: int) -> int:\n    if v == 3: raise {exception}\n    return v\n"
        failure = _refused(instance, body, ONE_TO_FOUR)
        assert failure["exception"].startswith(exception)
        assert (failure["row"], failure["failed"], failure["calls"]) == (2, 1, 3)


def test_exceptions_without_printable_text_are_reported(instance: Instance) -> None:
    body = """
class Shy(Exception):
    def __str__(self): raise RuntimeError
    __repr__ = __str__
@sm.udf
def f(v: int) -> int: raise Shy("\\ud800")
"""
    assert _refused(instance, body, ONE_TO_FOUR)["exception"] == "Shy"
    body = '@sm.udf\ndef f(v: int) -> int: raise ValueError("\\ud800" + "x" * 10**6)\n'
    failure = _refused(instance, body, ONE_TO_FOUR)
    assert failure["exception"].startswith("ValueError: \\ud800xxx")
    assert len(failure["exception"]) <= 2000


@pytest.mark.parametrize(
    ("annotation", "expression", "reason"),
    [
        ("int", "1.5", "expected int64, got float 1.5"),
        ("int", "True", "expected int64, got bool True"),
        ("int", "'7'", "expected int64, got str '7'"),
        ("int", "None", "expected int64, got None"),
        ("int", "2**80", "int 1208925819614629174706176 does not fit int64"),
        ("float", "'x'", "expected float64, got str 'x'"),
        ("float", "True", "expected float64, got bool True"),
        ("bool", "1", "expected bool, got int 1"),
        ("str", "b'x'", "expected string, got bytes b'x'"),
        ("str", "'\\ud800'", "does not fit string"),
        ("list[str]", "'ab'", "expected list<item: string>, got str 'ab'"),
        ("list[int]", "[1, None]", "expected int64, got None"),
        ("Annotated[int, 'int8']", "300", "int 300 does not fit int8"),
        ("datetime.date", "datetime.datetime(2020, 1, 1)", "expected date32, got datetime"),
        ("datetime.datetime", "datetime.datetime.now(datetime.timezone.utc)", "with a time zone"),
        ("datetime.time", "datetime.time(1, tzinfo=datetime.timezone.utc)", "with a time zone"),
        ("float", "2**53 + 1", "does not fit double"),
        ("float", "-(2**2000)", "does not fit double"),
        ("list[float]", "[2**53 + 1]", "expected float64, got int 9007199254740993"),
        ("Annotated[float, 'float32']", "1e300", "too large for float"),
        ("list[Annotated[float, 'float32']]", "[1.0, 1e300]", "too large for float"),
        (
            "Annotated[datetime.datetime, 'timestamp[s]']",
            "datetime.datetime(1, 1, 1, 0, 0, 0, 5)",
            "lose data",
        ),
        (
            "Annotated[datetime.timedelta, 'duration[s]']",
            "datetime.timedelta(0, 1, 5)",
            "lose data",
        ),
        ("Annotated[datetime.time, 'time32[ms]']", "datetime.time(1, 0, 0, 5)", "lose data"),
        ("datetime.timedelta", "__import__('pandas').Timedelta(1)", "with nanoseconds"),
        ("datetime.datetime", "__import__('pandas').Timestamp(1)", "with nanoseconds"),
        ("decimal.Decimal", "0.1", "write Decimal(str(value))"),
        ("decimal.Decimal", "decimal.Decimal('nan')", "got Decimal Decimal('NaN')"),
        ("Annotated[decimal.Decimal, 'decimal(4, 2)']", "decimal.Decimal(100)", "does not fit"),
        ("Point", "{'x': 1}", "without y"),
        ("Point", "{'x': 1, 'y': 1.0, 'z': 2}", "with z in addition to its fields"),
        ("Point", "Point('a', None)", "expected int64, got str 'a'"),
    ],
)
def test_a_wrong_value_names_value_and_row(
    instance: Instance, annotation: str, expression: str, reason: str
) -> None:
    code = instance.source(HEAD + f"@sm.udf\ndef f(v: int) -> {annotation}: return {expression}")
    with pytest.raises(Refused) as refused:
        instance.udf(code, "f", pa.record_batch({"v": [None, 7]}, schema=_ints("v")))
    failure = refused.value.failure
    assert failure["kind"] == "type"
    assert reason in failure["exception"]
    assert (failure["row"], failure["input"]) == (1, "v = 7")
    assert ("hint" in failure) == (expression == "None")


def test_decimals_are_rounded_to_the_columns_scale(instance: Instance) -> None:
    code = instance.source(
        HEAD + "@sm.udf\ndef f(v: int) -> decimal.Decimal: return decimal.Decimal(v) / 3"
    )
    assert instance.udf(code, "f", ONE_TO_FOUR).to_pylist()[0] == Decimal("0.3333333333")


def test_a_connection_continues_after_a_failure(instance: Instance) -> None:
    code = instance.source("import snowmelt as sm\n@sm.udf\ndef f(v: int) -> int: return 12 // v")
    caller = Caller(instance.open("udf", code, "f"), _ints("v"))
    with pytest.raises(Refused):
        caller(pa.record_batch({"v": [0]}, schema=_ints("v")))
    assert caller(pa.record_batch({"v": [4]}, schema=_ints("v"))).to_pylist() == [3]


def test_columns_without_a_python_type_are_refused(instance: Instance) -> None:
    code = instance.source(HEAD + "@sm.udf\ndef f(v: datetime.date) -> int: return 1")
    with pytest.raises(Refused) as refused:
        instance.udf(
            code, "f", pa.record_batch({"v": pa.array([2**30], pa.int32()).cast(pa.date32())})
        )
    assert refused.value.failure["kind"] == "type"
    assert "`v`" in refused.value.failure["hint"]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("OSError(101, 'Network is unreachable')", "no network"),
        ("FileNotFoundError(2, 'No such file or directory')", "files="),
        ("TimeoutError('timed out')", None),
        ("ConnectionResetError(104, 'Connection reset by peer')", None),
    ],
)
def test_errors_of_network_and_files_are_not_advised_to_become_null(
    instance: Instance, error: str, advice: str | None
) -> None:
    text = f"import snowmelt as sm\n@sm.udf\ndef f(v: int) -> int: raise {error}\n"
    with pytest.raises(Refused) as refused:
        instance.udf(instance.source(text), "f", pa.record_batch({"v": [1]}))
    hint = refused.value.failure.get("hint")
    assert "on_error" not in (hint or "")
    assert hint is None if advice is None else advice in hint


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("OSError(28, 'No space left on device')", "write less to /tmp"),
        ("OSError(24, 'Too many open files')", "close what is done with"),
        ('RuntimeError("can\'t start new thread")', "start fewer"),
    ],
)
def test_hints_name_no_option_that_udfs_lack(instance: Instance, error: str, advice: str) -> None:
    text = f"import snowmelt as sm\n@sm.udf\ndef f(v: int) -> int: raise {error}\n"
    text += f"def handler(event): raise {error}\n"
    code = instance.source(text)
    with pytest.raises(Refused) as refused:
        instance.udf(code, "f", pa.record_batch({"v": [1]}))
    hint = refused.value.failure["hint"]
    assert advice in hint and "=" not in hint
    with pytest.raises(Refused) as refused:
        instance.call(code, None)
    assert advice in refused.value.failure["hint"] and "=" in refused.value.failure["hint"]
