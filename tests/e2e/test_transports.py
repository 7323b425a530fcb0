"""Each transport to the real sandbox: equal values, and the failures of a function."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from suites import warm_server

import snowmelt as sm
from snowmelt.engines import Remote
from snowmelt.engines import polars as in_polars

TRANSPORTS = ["socket", "shared", "flight", "json", "mlflow", "numpy", "parquet"]


@sm.udf(batch="numpy", memory="512MiB", timeout="5s")
def halved(n: int, x: float) -> float:
    import os
    import time

    if n[0] == -1:
        raise ValueError("of the user")
    if n[0] == -2:
        os._exit(3)
    if n[0] == -3:
        time.sleep(600)
    return x / 2 + n


@pytest.fixture(autouse=True)
def server(nothing_left: None, shared_folder: Path) -> Iterator[None]:
    with warm_server(shared_folder):
        yield


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_sandbox_is_called_by_each_transport(transport: str) -> None:
    with Remote(halved, instances=2, transport=transport) as called:
        frame = pl.DataFrame({"n": range(30_000), "x": [n / 3 for n in range(30_000)]})
        found = frame.select(in_polars.expression(called, "n", "x")).to_series()
        assert found.to_list() == [n / 3 / 2 + n for n in range(30_000)]
        for n, code, text in [
            (-1, "SM-0201", "ValueError: of the user"),
            (-2, "SM-0210", "exited with code 3"),
            (-3, "SM-0212", ""),
        ]:
            with pytest.raises(sm.FunctionError) as failed:
                called(pa.array([n]), pa.array([1.0]))
            assert failed.value.code == code and text in str(failed.value), failed.value
            # The same instance, or another one.
            assert called(pa.array([1]), pa.array([1.0])).to_pylist() == [1.5]
