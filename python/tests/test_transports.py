"""Transports for comparison, with a real instance: the same answers and the same failures."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer import Instance
from test_lease import SOURCE, Platform, platform

from snowmelt import _transports
from snowmelt._lease import Lease, Lost
from snowmelt._remote import OTHER_TRANSPORTS
from snowmelt._runtime.codecs import CODECS, Malformed, Unfit
from snowmelt.errors import Error

__all__ = ["platform"]


def lease(platform: Platform, name: str, way: str, timeout_ms: int = 60_000) -> Lease:
    platform.timeout_ms = timeout_ms
    schema = pa.schema([pa.field("x", pa.float64()), pa.field("return", pa.float64())])
    request = {"runs": {"udf": {"source": {}, "name": name}}}
    return Lease(platform.server, request, schema, None, way)


def batch(*values: float | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], names=["x"])


@pytest.mark.parametrize("way", OTHER_TRANSPORTS)
def test_batches_come_back_and_failures_are_the_users(platform: Platform, way: str) -> None:
    leased = lease(platform, "fails", way)
    for values in ([1.5], [2.0**53 + 2, -0.0, 5e-324, 0.1], [float(n) / 3 for n in range(50_000)]):
        # Another offset.
        sliced = batch(0.0, *values).slice(1)
        assert leased.call(sliced) == sliced.column(0)
    with pytest.raises(Error) as failed:
        leased.call(batch(7.0))
    assert failed.value.code == "SM-0201" and "seven" in str(failed.value)
    assert leased.call(batch(8.0)).to_pylist() == [8.0], "the instance takes the next batch"
    leased.give_back()
    assert platform.returned == 1


@pytest.fixture
def its_own(own_instance: Instance) -> Iterator[Platform]:
    """A platform whose instance no other test has."""
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/tmp") as folder:
        yield Platform(Path(folder), own_instance, own_instance.source(SOURCE))


@pytest.mark.parametrize("way", OTHER_TRANSPORTS)
def test_an_instance_that_ends_is_lost(its_own: Platform, own_instance: Instance, way: str) -> None:
    leased = lease(its_own, "fails", way)
    assert leased.call(batch(1.0)).to_pylist() == [1.0]
    own_instance.stop()
    # The platform's copy of the connection ends with the lease.
    its_own.controls[0]._socket.close()
    with pytest.raises(Lost):
        leased.call(batch(1.0))
    leased.end()


@pytest.mark.parametrize("way", OTHER_TRANSPORTS)
def test_a_call_that_takes_too_long_is_lost(platform: Platform, way: str) -> None:
    leased = lease(platform, "sleeps", way, timeout_ms=2000)
    assert leased.call(batch(0.0)).to_pylist() == [0.0]
    with pytest.raises(Lost) as lost:
        leased.call(batch(600.0))
    assert lost.value.error.code == "SM-0212", str(lost.value.error)
    leased.end()


@pytest.mark.parametrize("way", OTHER_TRANSPORTS)
def test_nulls_are_kept_or_refused(platform: Platform, way: str) -> None:
    leased = lease(platform, "same_or_null", way)
    column = batch(1.0, None, 3.0)
    if way == "numpy":
        with pytest.raises(Error, match="null") as refused:
            leased.call(column)
        assert refused.value.code == "SM-0109"
    else:
        assert leased.call(column) == column.column(0)
    # A result that the format does not have.
    if way in ("json", "mlflow"):
        with pytest.raises(Error, match="NaN"):
            leased.call(batch(float("nan")))
        with pytest.raises(Error, match="cannot be sent") as unfit:
            leased.call(batch(-1.0))
        assert unfit.value.code == "SM-0202"
    assert leased.call(batch(4.0)).to_pylist() == [4.0]
    leased.end()


def test_types_that_a_format_lacks_are_refused_before_a_call() -> None:
    moment = pa.schema([pa.field("x", pa.timestamp("us")), pa.field("return", pa.float64())])
    words = pa.schema([pa.field("x", pa.float64()), pa.field("return", pa.string())])
    for way, schema in [("json", moment), ("mlflow", moment), ("numpy", moment), ("numpy", words)]:
        with pytest.raises(Error, match=f"transport='{way}' cannot pass") as refused:
            _transports.check(way, "f", schema)
        assert refused.value.code == "SM-0110"
    for way in ("json", "mlflow", "parquet", "flight", "auto"):
        _transports.check(way, "f", words)


KINDS: dict[str, list[pa.Array]] = {
    "json": [
        pa.array([True, None, False]),
        pa.array([2**63 - 1, None, -(2**63)]),
        pa.array([2**64 - 1, 0], pa.uint64()),
        pa.array([0.1, None], pa.float32()),
        pa.array(["", "ä\n\0", None]),
    ],
    "numpy": [
        pa.array([True, False]),
        *(pa.array([0, 100], kind) for kind in (pa.int8(), pa.uint64(), pa.int32())),
        pa.array([0.5, float("nan")], pa.float16()),
        pa.array([0.1, float("inf")], pa.float32()),
    ],
    "parquet": [
        pa.array([2**64 - 1, None], pa.uint64()),
        pa.array([b"\xff", None]),
        pa.array([1, None], pa.timestamp("ns", "Europe/Berlin")),
        pa.array([1, None], pa.duration("us")),
        pa.array([[{"a": 1}], [], None]),
    ],
}
KINDS["mlflow"] = KINDS["json"]


@pytest.mark.parametrize("way", CODECS)
def test_values_of_all_types_of_a_format_are_exact(way: str) -> None:
    codec = CODECS[way]
    for array in KINDS[way]:
        assert codec.check(array.type)
        given = pa.RecordBatch.from_arrays([array, array], names=["a", "b"])
        read = codec.read_arguments(codec.arguments(given), given.schema)
        assert read.schema.types == given.schema.types
        assert read.column(1).to_pylist() == array.to_pylist() or array.type == pa.float16()
        result = given.select(["a"])
        back = codec.read_result(codec.result(result), result.schema)
        assert (
            back.column(0).cast(pa.string()) == array.cast(pa.string())
            if (pa.types.is_floating(array.type))
            else back.column(0) == array
        )


WRONG: list[tuple[str, Any]] = [
    ("json", b"{"),
    ("json", b"[]"),
    ("json", b'{"data": 1}'),
    ("json", b'{"data": [[1, 2]]}'),
    ("json", b'{"data": [[0, 1.5]]}'),
    ("json", b'{"data": [[0, true]]}'),
    ("json", b'{"data": [[0, 9223372036854775808]]}'),
    ("json", b'{"data": [[0, 1, 2]]}'),
    ("mlflow", b'{"predictions": ["1"]}'),
    ("mlflow", b'{"predictions": {"0": 1}}'),
    ("numpy", b"\x93NUMPY"),
    ("numpy", CODECS["numpy"].arguments(pa.record_batch({"x": pa.array([1.0])}))),
    ("parquet", b"PAR1"),
    ("parquet", CODECS["parquet"].arguments(pa.record_batch({"x": pa.array(["1"])}))),
]


@pytest.mark.parametrize(("way", "payload"), WRONG)
def test_an_answer_of_another_form_is_refused(way: str, payload: bytes) -> None:
    schema = pa.schema([pa.field("return", pa.int64())])
    with pytest.raises(Malformed):
        CODECS[way].read_result(payload, schema)


def test_infinite_numbers_are_no_json() -> None:
    for value in (float("inf"), float("nan")):
        with pytest.raises(Unfit):
            CODECS["json"].arguments(pa.record_batch({"x": pa.array([value])}))
