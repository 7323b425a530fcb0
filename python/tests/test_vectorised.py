"""Batch UDFs in a real instance: pyarrow, pandas and numpy values, nulls, wrong results."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from peer import Instance, Refused

HEAD = """
import numpy as np, pandas as pd, pyarrow as pa, pyarrow.compute as pc
import datetime, decimal, typing; import snowmelt as sm
Part = typing.TypedDict("Part", {"n": int | None, "l": list[int | None] | None})
"""

FORMS = {"arrow": "sm.Array", "pandas": "sm.Series", "numpy": "sm.NDArray"}

PART = pa.struct([("n", pa.int64()), ("l", pa.list_(pa.int64()))])

COLUMNS: list[tuple[str, pa.DataType, Any]] = [
    ("bool", pa.bool_(), lambda r: r.random() < 0.5),
    ("int", pa.int64(), lambda r: r.choice([-(2**63), 2**63 - 1, 2**53 + 1, 7])),
    ("float", pa.float64(), lambda r: r.random()),
    ("str", pa.string(), lambda r: r.choice(["", "a", "漢😀"])),
    ("bytes", pa.binary(), lambda r: r.randbytes(3)),
    ("datetime.date", pa.date32(), lambda r: r.randrange(20_000)),
    ("datetime.datetime", pa.timestamp("us"), lambda r: r.randrange(10**15)),
    ("datetime.timedelta", pa.duration("us"), lambda r: r.randrange(10**15)),
    ("decimal.Decimal", pa.decimal128(38, 10), lambda r: r.randrange(10**6)),
    ("list[float]", pa.list_(pa.float64()), lambda r: [r.random()] * r.randrange(3)),
    ("list[int | None]", pa.list_(pa.int64()), lambda r: _integers(r)),
    ("list[list[int | None]]", pa.list_(pa.list_(pa.int64())), lambda r: [_integers(r)] * 2),
    ("Part", PART, lambda r: _part(r)),
    ("list[Part | None]", pa.list_(PART), lambda r: [None, _part(r)][: r.randrange(3)]),
]


def _integers(r: random.Random) -> list[int | None]:
    """Nulls and integers that a float cannot represent."""
    return [r.choice([2**60 + 1, -(2**60) - 1, None]) for _ in range(r.randrange(4))]


def _part(r: random.Random) -> dict[str, Any]:
    return {"n": r.choice([2**60 + 1, None]), "l": r.choice([None, _integers(r)])}


@pytest.fixture(scope="module")
def identities(instance: Instance) -> str:
    text = HEAD
    for form, wrapper in FORMS.items():
        for number, (annotation, *_) in enumerate(COLUMNS):
            for name, kind in (("strict", annotation), ("nulls", f"{annotation} | None")):
                text += f"@sm.udf\ndef {form}_{name}_{number}(v: {wrapper}[{kind}]) -> {wrapper}[{kind}]:\n"
                text += "    return v\n"
    return instance.source(text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "number", range(len(COLUMNS)), ids=[annotation for annotation, *_ in COLUMNS]
)
def test_values_and_nulls_survive(
    instance: Instance, identities: str, form: str, number: int
) -> None:
    _, kind, make = COLUMNS[number]
    r = random.Random(number)
    for rows, nulls in [(0, 0.0), (3, 1.0), (40, 0.0), (60, 0.3)]:
        column = pa.array([None if r.random() < nulls else make(r) for _ in range(rows)], kind)
        for name in ("strict", "nulls"):
            if (form, name) == ("numpy", "nulls") and kind == pa.float64() and column.null_count:
                continue  # numpy has no null beside NaN for floats: the next test has these.
            result = instance.udf(
                identities, f"{form}_{name}_{number}", pa.record_batch({"v": column})
            )
            assert result.type == kind
            assert result.to_pylist() == column.to_pylist(), name


SOME = pa.record_batch({"x": pa.array([1.0, None, 3.0]), "y": pa.array([10, 20, None])})


@pytest.mark.parametrize("form", FORMS)
def test_rows_with_a_null_are_skipped_unless_nulls_are_allowed(
    instance: Instance, form: str
) -> None:
    code = instance.source(
        HEAD
        + f"""
@sm.udf(batch="{form}")
def strict(x: float, y: int) -> int:
    assert len(x) == len(y) == 1, (x, y)
    return y
@sm.udf(batch="{form}")
def counted(x: float | None, y: int | None) -> int:
    assert len(x) == 3
    missing = {{"arrow": lambda: y.null_count, "pandas": lambda: y.isna().sum(),
               "numpy": lambda: np.ma.count_masked(y)}}["{form}"]()
    whole = [missing] * 3
    return {{"arrow": pa.array, "pandas": pd.Series, "numpy": np.array}}["{form}"](whole)
"""
    )
    assert instance.udf(code, "strict", SOME).to_pylist() == [10, None, None]
    assert instance.udf(code, "counted", SOME).to_pylist() == [1, 1, 1]


def test_integers_with_nulls_stay_integers_in_pandas(instance: Instance) -> None:
    code = instance.source(
        HEAD + "@sm.udf\ndef f(y: sm.Series[int | None]) -> sm.Series[str]:\n"
        "    return pd.Series([str(y.dtype)] * len(y))"
    )
    assert instance.udf(code, "f", SOME.select(["y"])).to_pylist() == ["Int64"] * 3


@pytest.mark.parametrize("form", ["pandas", "numpy"])
def test_integers_beside_a_null_in_a_list_are_objects_and_others_are_not(
    instance: Instance, form: str
) -> None:
    code = instance.source(
        HEAD
        + f"""
@sm.udf(batch="{form}")
def f(v: list[int | None]) -> str:
    return np.array([str(item.dtype) + str(item.tolist()) for item in v], dtype=object)
"""
    )
    kind = pa.list_(pa.int64())
    whole = pa.record_batch({"v": pa.array([[2**60 + 1], []], kind)})
    assert instance.udf(code, "f", whole).to_pylist() == ["int64[1152921504606846977]", "int64[]"]
    nulls = pa.record_batch({"v": pa.array([[2**60 + 1, None], [5]], kind)})
    expected = ["object[1152921504606846977, None]", "object[5]"]
    assert instance.udf(code, "f", nulls).to_pylist() == expected


def test_nan_is_null_in_pandas_and_a_number_in_numpy(instance: Instance) -> None:
    code = instance.source(
        HEAD
        + """
@sm.udf
def p(x: sm.Series[float]) -> sm.Series[float]: return x * np.nan
@sm.udf
def n(x: sm.NDArray[float]) -> sm.NDArray[float]: return x * np.nan
"""
    )
    batch = pa.record_batch({"x": [1.0]})
    assert instance.udf(code, "p", batch).to_pylist() == [None]
    assert str(instance.udf(code, "n", batch).to_pylist()) == "[nan]"


def test_numpy_arrays_may_be_written_to(instance: Instance) -> None:
    code = instance.source(
        HEAD
        + "@sm.udf\ndef f(x: sm.NDArray[float]) -> sm.NDArray[float]:\n    x += 1\n    return x"
    )
    assert instance.udf(code, "f", pa.record_batch({"x": [1.0, 2.0]})).to_pylist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("form", "expression"),
    [
        ("arrow", "pa.chunked_array([x.slice(0, 1), x.slice(1)])"),
        ("arrow", "x.cast(pa.float32())"),
        ("arrow", "pa.array([1, 2], pa.int8())"),
        ("arrow", "x.dictionary_encode()"),
        ("pandas", "x.astype('Float64')"),
        ("pandas", "pd.Series([1.0, 2.0], dtype=object)"),
        ("pandas", "x.to_numpy()"),
        ("pandas", "pd.Series([1.0, 2.0], index=[7, 3])"),
        ("numpy", "x.astype('float32')"),
        ("numpy", "np.array([1, 2], dtype=object)"),
    ],
)
def test_answers_may_have_another_width_or_container(
    instance: Instance, form: str, expression: str
) -> None:
    code = instance.source(
        HEAD + f"@sm.udf(batch='{form}')\ndef f(x: float) -> float:\n    return {expression}"
    )
    result = instance.udf(code, "f", pa.record_batch({"x": [1.0, 2.0]}))
    assert (result.type, result.to_pylist()) == (pa.float64(), [1.0, 2.0])


@pytest.mark.parametrize(
    ("form", "expression", "kind", "reason"),
    [
        ("arrow", "x.slice(1)", "length", "expected 2 values, one for each row, got 1"),
        ("pandas", "pd.concat([x, x])", "length", "got 4"),
        ("numpy", "x[:0]", "length", "got 0"),
        ("arrow", "pc.sum(x)", "type", "expected a pyarrow.Array, got pyarrow.lib.DoubleScalar"),
        ("arrow", "[1.0, 2.0]", "type", "got builtins.list"),
        ("arrow", "None", "type", "got builtins.NoneType"),
        ("arrow", "pa.array(['1', '2'])", "type", "expected float64, got an array of string"),
        ("pandas", "x.to_frame()", "type", "expected a pandas.Series, got pandas"),
        ("pandas", "x.mean()", "type", "expected a pandas.Series, got"),
        ("pandas", "pd.Series([1.0, 'a'])", "type", "value 1: expected float64, got str 'a'"),
        ("numpy", "np.zeros((2, 2))", "type", "numpy.ndarray of one dimension, got numpy.ndarray"),
        ("numpy", "x > 0", "type", "expected float64, got an array of bool"),
    ],
)
def test_wrong_answers_are_refused(
    instance: Instance, form: str, expression: str, kind: str, reason: str
) -> None:
    code = instance.source(
        HEAD + f"@sm.udf(batch='{form}')\ndef f(x: float) -> float:\n    return {expression}"
    )
    with pytest.raises(Refused) as refused:
        instance.udf(code, "f", pa.record_batch({"x": [1.0, 2.0]}))
    assert refused.value.failure["kind"] == kind
    assert reason in refused.value.failure["exception"]
    assert refused.value.failure["function"] == "f"


def test_values_that_do_not_fit_are_refused_not_truncated(instance: Instance) -> None:
    for expression in ("x.cast(pa.int64())", "pc.multiply(x.cast(pa.int64()), 1000)"):
        text = HEAD + "from typing import Annotated\n@sm.udf(batch='arrow')\n"
        code = instance.source(
            text + f"def f(x: float) -> Annotated[int, 'int8']: return {expression}"
        )
        with pytest.raises(Refused) as refused:
            instance.udf(code, "f", pa.record_batch({"x": [1.0, 200.0]}))
        assert refused.value.failure["kind"] == "type"


NOON = "datetime.datetime(2024, 7, 1, 12)"
ZONED = f"pa.array([{NOON}] * 2, pa.timestamp('us')).cast(pa.timestamp('us', 'America/New_York'))"
UTC = "pa.timestamp('us', 'UTC')"


@pytest.mark.parametrize(
    ("form", "declared", "expression"),
    [
        ("arrow", "datetime.datetime", ZONED),
        ("arrow", UTC, f"pa.array([{NOON}] * 2)"),
        (
            "pandas",
            "datetime.datetime",
            f"pd.Series([{NOON}] * 2).dt.tz_localize('America/New_York')",
        ),
        ("pandas", UTC, f"pd.Series([{NOON}] * 2)"),
        ("arrow", "list[datetime.datetime]", f"pa.array([[v] for v in {ZONED}])"),
        ("arrow", "datetime.datetime", f"{ZONED}.dictionary_encode()"),
        ("arrow", "float", "pa.array([decimal.Decimal('0.1')] * 2)"),
        ("arrow", "decimal.Decimal", "pa.array([1.005] * 2)"),
        ("numpy", "decimal.Decimal", "np.array([1.005] * 2)"),
        ("arrow", "Annotated[float, 'float32']", "pa.array([1.0, 1e300])"),
        ("numpy", "Annotated[float, 'float32']", "np.array([1.0, -1e300])"),
        ("pandas", "Annotated[float, 'float32']", "pd.Series([1.0, 1e300])"),
        ("arrow", "list[Annotated[float, 'float32']]", "pa.array([[1.0], [None, 1e300]])"),
        ("arrow", "float", "pa.array([2**53 + 1] * 2)"),
        ("arrow", "Annotated[float, 'float32']", "pa.array([2**24 + 1] * 2)"),
        ("arrow", "datetime.datetime", "pa.array([1, 2], pa.timestamp('ns'))"),
        ("arrow", "datetime.timedelta", "pa.array([1, 2], pa.duration('ns'))"),
        (
            "arrow",
            "Annotated[decimal.Decimal, 'decimal(4, 2)']",
            "pa.array([decimal.Decimal(100)] * 2)",
        ),
        (
            "arrow",
            "Annotated[decimal.Decimal, 'decimal(4, 2)']",
            "pa.array([decimal.Decimal('99.995')] * 2)",
        ),
    ],
)
def test_results_whose_values_would_change_are_refused(
    instance: Instance, form: str, declared: str, expression: str
) -> None:
    code = instance.source(
        HEAD
        + f"from typing import Annotated\n@sm.udf(batch={form!r}, args=[float], returns={declared})\n"
        f"def f(x):\n    return {expression}"
    )
    with pytest.raises(Refused) as refused:
        instance.udf(code, "f", pa.record_batch({"x": [1.0, 2.0]}))
    assert refused.value.failure["kind"] == "type", refused.value.failure


@pytest.mark.parametrize(
    ("form", "declared", "expression", "expected"),
    [
        ("arrow", UTC, ZONED, [12, 12]),
        ("pandas", UTC, f"pd.Series([{NOON}] * 2).dt.tz_localize('UTC')", [12, 12]),
        # numpy has no zones: its times are in UTC where one is declared.
        ("numpy", UTC, "np.array(['2024-07-01T12'] * 2, 'datetime64[us]')", [12, 12]),
        (
            "numpy",
            "datetime.datetime",
            "np.array(['2024-07-01T12'] * 2, 'datetime64[s]')",
            [12, 12],
        ),
        (
            "arrow",
            "Annotated[float, 'float32']",
            "pa.array([float('inf'), 0.1])",
            ["inf", "0.10000000149011612"],
        ),
        (
            "arrow",
            "Annotated[decimal.Decimal, 'decimal(4, 2)']",
            "pa.array([decimal.Decimal('1.005'), decimal.Decimal('9.995')])",
            ["1.00", "10.00"],
        ),
        (
            "numpy",
            "Annotated[decimal.Decimal, 'decimal(4, 2)']",
            "np.array([decimal.Decimal('1.005'), decimal.Decimal('9.995')])",
            ["1.00", "10.00"],
        ),
    ],
)
def test_results_whose_values_stay_are_converted(
    instance: Instance, form: str, declared: str, expression: str, expected: list[Any]
) -> None:
    code = instance.source(
        HEAD
        + f"from typing import Annotated\n@sm.udf(batch={form!r}, args=[float], returns={declared})\n"
        f"def f(x):\n    return {expression}"
    )
    found = instance.udf(code, "f", pa.record_batch({"x": [1.0, 2.0]}))
    shown = [v.as_py().hour if pa.types.is_timestamp(v.type) else str(v.as_py()) for v in found]
    assert shown == expected


def test_a_raise_shows_the_first_rows(instance: Instance) -> None:
    code = instance.source(
        HEAD + "@sm.udf(batch='pandas')\ndef f(x: float) -> float:\n    return x.nope"
    )
    with pytest.raises(Refused) as refused:
        instance.udf(code, "f", pa.record_batch({"x": [1.0, 2.0]}))
    failure = refused.value.failure
    assert failure["kind"] == "raised"
    assert failure["exception"].startswith("AttributeError: ")
    assert failure["location"] == {"file": "udfs.py", "line": 7, "within": "f()"}
    assert failure["input"] == "x = [1.0, 2.0] (the first of 2 rows)"


def test_a_missing_library_gives_a_hint_with_its_name(tmp_path: Any) -> None:
    (tmp_path / "pandas.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'pandas'\", name='pandas')"
    )
    own = Instance(tmp_path)
    try:
        code = own.source(
            "import snowmelt as sm\n@sm.udf(batch='pandas')\ndef f(x: float) -> float: return x"
        )
        with pytest.raises(Refused) as refused:
            own.udf(code, "f", pa.record_batch({"x": [1.0]}))
        assert refused.value.failure["kind"] == "load"
        assert 'packages=["pandas"]' in refused.value.failure["hint"]
    finally:
        own.stop()
