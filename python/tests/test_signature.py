"""The types of annotations, and the errors of unsupported ones."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from typing import Annotated, Any, Optional, TypedDict, Union

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from peer import run_program

import snowmelt as sm


class Spot(TypedDict):
    name: str
    at: tuple[float, ...]


@dataclasses.dataclass
class Loop:
    inner: Loop | None


@pytest.mark.parametrize(
    ("annotation", "kind", "nullable"),
    [
        (int, pa.int64(), False),
        (Optional[int], pa.int64(), True),
        (Union[None, str], pa.string(), True),
        (list[int | None], pa.list_(pa.int64()), False),
        (Spot, pa.struct([("name", pa.string()), ("at", pa.list_(pa.float64()))]), False),
        (np.int32, pa.int32(), False),
        (np.float32, pa.float32(), False),
        (np.bool_, pa.bool_(), False),
        (pa.int8(), pa.int8(), False),
        (pa.timestamp("ns", tz="UTC"), pa.timestamp("ns", tz="UTC"), False),
        (Annotated[int, "uint8"], pa.uint8(), False),
        (Annotated[int, pa.int16()], pa.int16(), False),
        (Annotated[float | None, "float32"], pa.float32(), True),
        (Annotated[decimal.Decimal, "decimal(12, 2)"], pa.decimal128(12, 2), False),
        (Annotated[str, 3], pa.string(), False),
        (decimal.Decimal, pa.decimal128(38, 10), False),
        (datetime.datetime, pa.timestamp("us"), False),
    ],
)
def test_annotations_become_fields(annotation: Any, kind: pa.DataType, nullable: bool) -> None:
    made = sm.udf(args=[annotation], returns=annotation, name="f")(lambda v: v)
    schema = made.signature.arrow_schema()
    assert schema.field("v") == pa.field("v", kind, nullable)
    # A skipped row gives null, so a result is always nullable.
    assert schema.field("return") == pa.field("return", kind, True)


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (list, "parameter `v`: list has no item type: write for example list[float]"),
        (dict, "parameter `v`: dict has no declared fields: write a TypedDict or a dataclass"),
        (dict[str, int], "has no declared fields"),
        (None, "parameter `v`: None is not a column type"),
        (Any, "has no column type"),
        (object, "object has no column type"),
        (Union[int, str], "is several types"),
        (tuple[int, str], "has a fixed length"),
        (pd.Series, "write for example sm.Series[float]"),
        (pa.Array, "write for example sm.Array[float]"),
        (np.ndarray, "write for example sm.NDArray[float]"),
        (np.complex128, "numpy.complex128 has no column type"),
        (Loop, "contains itself"),
        (Annotated[int, "decimal(12, 2)"], "does not hold values of int"),
        (Annotated[int, "int99"], "is not an Arrow type"),
        (Annotated[decimal.Decimal, "decimal(99, 2)"], "precision"),
        (pa.dictionary(pa.int8(), pa.string()), "is not supported"),
        (3, "3 has no column type"),
    ],
)
def test_unsupported_annotations_are_refused(annotation: Any, reason: str) -> None:
    def f(v: Any) -> int:
        return 1

    f.__annotations__["v"] = annotation
    with pytest.raises(sm.SignatureError) as refused:
        sm.udf(f)
    error = refused.value
    assert reason in error.message
    assert error.code == "SM-0205"
    assert isinstance(error, sm.FunctionError)
    assert error.report["location"]["within"] == "f()"


def test_unsupported_parameters_are_refused() -> None:
    def variadic(*v: int) -> int:
        return 1

    def by_name(*, v: int) -> int:
        return 1

    def silent(v: int):  # type: ignore[no-untyped-def]
        return v

    for function, reason in [
        (variadic, "`*v: 'int'` is not positional"),
        (by_name, "is not positional"),
        (silent, "the return value has no annotation: write for example -> float"),
        (max, "cannot be read"),
    ]:
        with pytest.raises(sm.SignatureError, match="no usable signature") as refused:
            sm.udf(function)
        assert reason in str(refused.value)


def test_the_option_or_the_annotations_set_the_batch_form() -> None:
    @sm.udf
    def series(v: sm.Series[float], w: sm.Series[int | None]) -> sm.Series[str]:
        return v

    @sm.udf(batch="numpy")
    def elements(v: float) -> float:
        return v

    assert series.signature.batch == "pandas"
    assert [e.nullable for _, e in series.signature.arguments] == [False, True]
    assert elements.signature.batch == "numpy"
    assert series.signature.arrow_schema().field("return").type == pa.string()


def test_mixed_batch_forms_are_refused() -> None:
    def mixed(v: sm.Series[float]) -> sm.Array[float]:
        return v

    def nothing() -> sm.Array[float]:
        return None  # type: ignore[return-value]

    for function, options, reason in [
        (mixed, {}, "mixes batch forms: arrow, pandas"),
        (mixed, {"batch": "scalar"}, "mixes batch forms"),
        (nothing, {}, "needs a parameter"),
        (nothing, {"batch": "spark"}, "is not one of scalar, arrow, pandas, numpy"),
        (mixed, {"args": [int, int]}, "args= has 2 types for 1 parameters"),
        (lambda v: v, {"args": [int], "returns": int}, "'<lambda>' is not a SQL name"),
        (len, {"args": [sm.Array[str]], "returns": int, "on_error": "null"}, "row by row"),
    ]:
        with pytest.raises(sm.SignatureError) as refused:
            sm.udf(**options)(function)
        assert reason in str(refused.value)


def test_names_of_the_surrounding_function_are_found() -> None:
    @dataclasses.dataclass
    class Local:
        a: int

    @sm.udf
    def f(v: Local) -> Local:
        return v

    assert f.signature.arrow_schema().field("v").type == pa.struct([("a", pa.int64())])

    with pytest.raises(sm.SignatureError, match="`v`, 'Nowhere', cannot be read"):

        @sm.udf
        def g(v: Nowhere) -> int:  # type: ignore[name-defined]  # noqa: F821
            return v


def test_a_udf_can_be_called_and_shows_its_signature() -> None:
    @sm.udf(packages=["six"])
    def price(amount: float, note: str | None = None) -> float:
        """Doubles."""
        return amount * 2

    assert price(2.0) == price(amount=2.0) == 4.0
    assert (price.__name__, price.__doc__) == ("price", "Doubles.")
    assert repr(price) == "<udf price(amount: float64, note: string or null) -> float64>"


def test_wrong_options_are_refused_when_decorating() -> None:
    with pytest.raises(TypeError, match="on_error='ignore'"):
        sm.udf(on_error="ignore")
    with pytest.raises(TypeError, match="deterministic='yes'"):
        sm.udf(deterministic="yes")  # type: ignore[call-overload]
    with pytest.raises(sm.QueryError, match="not an amount of memory"):
        sm.udf(memory="much")
    with pytest.raises(sm.QueryError, match="not an amount of time"):
        sm.udf(timeout="5 parsecs")
    with pytest.raises(TypeError, match=r'packages=\["six"\]'):
        sm.udf(packages="six")


def test_importing_and_decorating_is_cheap() -> None:
    program = (
        "import sys, snowmelt as sm\n"
        "@sm.udf\ndef f(v: list[float]) -> str | None: return ''\n"
        "@sm.function(memory='1GiB')\ndef g(event): return 1\n"
        "assert not {'pyarrow', 'numpy', 'pandas', 'polars'} & set(sys.modules)\n"
    )
    run_program(program)
