"""Results as plain data: values survive a round trip, and decoding executes no code."""

from __future__ import annotations

import base64
import collections
import datetime
import decimal
import fractions
import io
import json
import os
import pathlib
import pickle
import uuid
import zoneinfo
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from peer import Instance, run_program

from snowmelt import _outcomes, _plain
from snowmelt._runtime import plain

UTC = datetime.timezone.utc
NAIVE = datetime.datetime(2024, 3, 31, 2, 30, 1, 5)

VALUES = [
    None,
    True,
    2**100,
    -1,
    0.1,
    float("inf"),
    "漢\ud800\0",
    b"\0\xff",
    bytearray(b"x"),
    1 - 2j,
    [],
    [1, [2, (3,)], {4}],
    (1, "a", None),
    {"a": {"b": (1,)}, "c": [1.5]},
    {1: "a", (2, 3): frozenset({4})},
    {True: 1, None: 2},
    range(3, 9, 2),
    collections.OrderedDict(b=1, a=[2]),
    collections.Counter("abca"),
    collections.defaultdict(list, a=[1]),
    collections.deque([1, (2,)], 5),
    datetime.date(2024, 2, 29),
    NAIVE,
    NAIVE.replace(tzinfo=UTC),
    NAIVE.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))),
    NAIVE.replace(tzinfo=zoneinfo.ZoneInfo("Europe/Zurich"), fold=1),
    datetime.time(1, 2, 3),
    datetime.timedelta(-1, 5, 7),
    decimal.Decimal("-1.20"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=7),
    pathlib.Path("/a/b"),
    pathlib.PurePosixPath("a"),
]


def there_and_back(value: Any) -> Any:
    return _plain.decode(json.loads(plain.dumps(value)))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_keep_value_and_type(value: Any) -> None:
    found = there_and_back(value)
    assert found == value and type(found) is type(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.array([2**60 + 1, -1]),
        np.arange(12, dtype="u1").reshape(3, 4).T,
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([]),
        np.zeros((0, 3), "f4"),
        np.array(5),
        np.array(["a", "bcd"]),
        np.array(["2024-01-01", "NaT"], "M8[D]"),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array([1, "a", None, (2,)], dtype=object),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.array([1.5, np.nan], ">f8"),
    ],
    ids=repr,
)
def test_arrays_are_equal_after_a_round_trip(array: Any) -> None:
    found = there_and_back(array)
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype and found.shape == array.shape
    assert type(found) is np.ndarray and found.flags.writeable


def test_numpy_numbers_and_masked_arrays_survive_a_round_trip() -> None:
    for number in (np.int8(3), np.float32(0.5), np.bool_(True), np.datetime64("2024-01-01")):
        found = there_and_back(number)
        assert type(found) is type(number) and found == number
    masked = np.ma.MaskedArray([1, 2, 3], mask=[False, True, False])
    found = there_and_back({"m": [masked]})["m"][0]
    assert found.tolist() == [1, None, 3] and found.dtype == masked.dtype


def _frame() -> pd.DataFrame:
    moments = pd.Series(pd.to_datetime(["2024-01-01", None]))
    return pd.DataFrame(
        {
            "Int64": pd.array([2**60 + 1, None], "Int64"),
            "int64": [2**60 + 1, 2],
            "float": [1.5, np.nan],
            "Float32": pd.array([1.5, None], "Float32"),
            "boolean": pd.array([True, None], "boolean"),
            "text": ["a", None],
            "string": pd.array(["a", None], "string"),
            "category": pd.Categorical(["b", None], categories=["c", "b"], ordered=True),
            "moment": moments,
            "zoned": moments.dt.tz_localize("Europe/Zurich"),
            "object": pd.Series([{"a": 1}, (2,)], dtype=object),
            "span": pd.to_timedelta(["1s", None]),
        },
        index=pd.Index(["x", "y"], name="key"),
    )


def test_pandas_frames_keep_types_and_index() -> None:
    frame = _frame()
    pd.testing.assert_frame_equal(there_and_back(frame), frame)
    for column in frame:
        pd.testing.assert_series_equal(there_and_back(frame[column]), frame[column])
    levels = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["l", None])
    wide = pd.DataFrame([[1, 2]], columns=levels)
    pd.testing.assert_frame_equal(there_and_back(wide), wide)
    empty = pd.DataFrame({"a": pd.Series([], dtype="Int8")})
    pd.testing.assert_frame_equal(there_and_back(empty), empty)
    twice = pd.DataFrame([[1, "a"]], columns=["n", "n"])
    pd.testing.assert_frame_equal(there_and_back(twice), twice)
    index = pd.DatetimeIndex(["2024-01-01", "2024-02-01"], tz="UTC", name="t")
    pd.testing.assert_index_equal(there_and_back(index), index)
    for value in (pd.Timestamp(NAIVE, tz="Asia/Tokyo"), pd.Timestamp(5), pd.Timedelta("1h")):
        assert there_and_back(value) == value and type(there_and_back(value)) is type(value)
    assert there_and_back(pd.NA) is pd.NA and there_and_back(pd.NaT) is pd.NaT


def test_arrow_and_polars_survive_a_round_trip() -> None:
    table = pa.table({"n": [1, None], "l": [[1], None], "s": [{"a": 2**60 + 1}, None]})
    assert there_and_back(table).equals(table)
    [batch] = table.to_batches()
    assert there_and_back(batch).equals(batch)
    empty = batch.slice(0, 0)
    assert there_and_back(empty).equals(empty)
    assert there_and_back(table["n"]).equals(table["n"])
    array = pa.array(["a", None]).dictionary_encode()
    assert there_and_back(array).equals(array)
    frame = pl.DataFrame({"n": [1, None], "t": ["a", "b"]})
    assert there_and_back(frame).equals(frame)
    assert there_and_back(frame["n"]).equals(frame["n"])


class Own:
    """A class defined by the user."""


def _within_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Own(), "Own is not plain data"),
        ({"a": [Own]}, "type is not plain data"),
        (len, "builtin_function_or_method"),
        (_within_itself(), "contains itself"),
        (pd.Series(pd.period_range("2024", periods=1)), "period"),
        (np.array([(1, Own())], dtype=[("a", "i4"), ("b", "O")]), "not plain data"),
        (collections.defaultdict(lambda: 1), "factory"),
    ],
    ids=str,
)
def test_other_types_are_refused_by_name(value: Any, reason: str) -> None:
    with pytest.raises(plain.NotPlain, match=reason):
        plain.dumps(value)


class Trap:
    """Data of a hostile sandbox: a pickle that executes code."""

    def __init__(self, marker: pathlib.Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def _hostile(marker: pathlib.Path) -> list[Any]:
    trap = base64.b64encode(pickle.dumps(Trap(marker))).decode()
    objects = np.array([Trap(marker)], dtype=object)
    npy = io.BytesIO()
    np.save(npy, objects, allow_pickle=True)
    array = base64.b64encode(npy.getvalue()).decode()
    huge = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)}
    np.lib.format.write_array_header_1_0(huge, shape)
    claims = base64.b64encode(huge.getvalue() + b"\0" * 64).decode()
    return [
        trap,
        [[True, trap]],
        [[True, json.dumps(["pickle", trap])]],
        [[True, json.dumps(["ndarray", array])]],
        [[True, json.dumps(["ndarray", claims])]],
        [[True, json.dumps(["os.mkdir", str(marker)])]],
        [[True, json.dumps(["list", "x", "y"])]],
        [[True, json.dumps(["arrow", "table", base64.b64encode(b"\xff" * 64).decode()])]],
        [[True, json.dumps(["defaultdict", 99, []])]],
        [[True, "[" * 100_000]],
        [[True, 5]],
        [[False, {"kind": "raised", "function": "f", "exception": "x", "own": trap}]],
        [[False, {"kind": "raised", "function": "f", "exception": "x", "location": 5}]],
        [
            [
                False,
                {
                    "kind": "raised",
                    "function": "f",
                    "exception": "x",
                    "own": '["exec", ["list", ["1"]]]',
                },
            ]
        ],
        [[False, "nonsense"]],
        {},
        None,
    ]


def test_data_from_a_sandbox_is_never_executed(tmp_path: pathlib.Path) -> None:
    marker = tmp_path / "marker"
    for sent in _hostile(marker):
        for answer in ({"results": sent}, {"results": json.dumps(sent)}, sent):
            try:
                [(succeeded, value)] = _outcomes.read(answer, 1, "plain")
            except Exception as error:
                succeeded, value = False, error
            assert not succeeded and getattr(value, "code", None), (sent, value)
            assert isinstance(str(value), str)
            assert not marker.exists(), sent
    # The pickle works: it is executed if the caller requests pickles.
    trap = base64.b64encode(pickle.dumps([(True, pickle.dumps(Trap(marker)))])).decode()
    _outcomes.read({"results": trap}, 1, "pickle")
    assert marker.exists()


def test_a_function_sends_pickles_only_on_request(instance: Instance) -> None:
    text = """
    class Own: pass
    class OwnError(ValueError): pass
    def f(item):
        if item == "raise":
            raise OwnError("of the user")
        return Own() if item == "own" else {item}
    """
    code = instance.source(text)
    outcomes = instance.map(code, ["a", "own", "raise"])
    assert outcomes[0] == (True, {"a"})
    refused, raised = outcomes[1][1], outcomes[2][1]
    assert refused.code == "SM-0202" and "Own is not plain data" in refused.message
    assert 'results="pickle"' in refused.hint
    assert raised.code == "SM-0201" and "OwnError: of the user" in raised.message


def test_builtin_exceptions_keep_their_class(instance: Instance) -> None:
    code = instance.source("def f(item): return {}[item]")
    [(succeeded, error)] = instance.map(code, ["a"])
    assert not succeeded and type(error) is KeyError and error.args == ("a",)
    assert error.__cause__.code == "SM-0201"


def test_pickles_are_sent_on_request(instance: Instance) -> None:
    class OwnError(Exception):
        """An exception defined by the user."""

    def f(n: int) -> Any:
        if n:
            raise OwnError(n)
        return Own

    outcomes = instance.map(instance.pickled(f), [0, 1], results="pickle")
    assert outcomes[0][0] and outcomes[0][1].__name__ == "Own"
    assert type(outcomes[1][1]).__name__ == "OwnError" and outcomes[1][1].args == (1,)


def test_encoding_plain_data_imports_no_further_modules() -> None:
    program = """
import base64, json, sys
before = set(sys.modules)
from snowmelt._runtime import plain
plain.dumps([{1: (2, {3})}, b"", 1j])
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - {"snowmelt", "typing", "_typing", "collections"}))
"""
    assert run_program(program) == "[]\n"
