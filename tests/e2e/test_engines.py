"""One `@sm.udf` in other engines: equal answers, the user's errors, and nothing left behind."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import wait_for
from suites import warm_server

import snowmelt as sm
from common.server import Server
from snowmelt.engines import Remote, remote
from snowmelt.engines import datafusion as in_datafusion
from snowmelt.engines import duckdb as in_duckdb
from snowmelt.engines import ibis as in_ibis
from snowmelt.engines import pandas as in_pandas
from snowmelt.engines import polars as in_polars

ROWS = 50_000


@sm.udf
def grade(amount: float, name: str | None) -> str | None:
    if name is None:
        return None
    return f"{name}:{round(amount * 2)}"


@sm.udf(batch="arrow")
def doubled(n: int) -> int:
    import pyarrow.compute as pc

    return pc.multiply(n, 2)  # type: ignore[no-any-return]


@sm.udf
def refuses_seven(n: int) -> int:
    if n == 7:
        raise ValueError("seven")
    return n


@sm.udf
def dies_at_seven(n: int) -> int:
    import os

    if n == 7:
        os._exit(3)
    return n


@sm.udf(memory="128MiB")
def takes_memory(n: int) -> int:
    return len(bytearray(n))


@sm.udf(timeout="1s")
def sleeps(n: int) -> int:
    import time

    time.sleep(n)
    return n


@pytest.fixture(autouse=True)
def server(nothing_left: None, shared_folder: Path) -> Iterator[None]:
    with warm_server(shared_folder):
        yield


@pytest.fixture(scope="module")
def table() -> pa.Table:
    names = [None if n % 13 == 0 else f"row {n % 1000}" for n in range(ROWS)]
    return pa.table({"n": range(ROWS), "amount": [n / 4 for n in range(ROWS)], "name": names})


@pytest.fixture(scope="module")
def expected(table: pa.Table) -> list[str | None]:
    """Computed in this process: a UDF is still a plain function."""
    columns = (table[name].to_pylist() for name in ("amount", "name"))
    return [grade(amount, name) for amount, name in zip(*columns, strict=True)]


def by_duckdb(table: pa.Table) -> list[Any]:
    with duckdb.connect() as connection:
        in_duckdb.register(connection, grade)
        connection.register("t", table)
        rows = connection.sql("select n, grade(amount, name) from t").fetchall()
    return [value for _, value in sorted(rows)]


def by_polars(table: pa.Table) -> list[Any]:
    frame: Any = pl.from_arrow(table)
    return list(frame.select(in_polars.expression(grade, "amount", "name")).to_series())


def by_polars_streaming(table: pa.Table) -> list[Any]:
    frame: Any = pl.from_arrow(table)
    called = in_polars.expression(grade, "amount", "name").alias("g")
    return list(frame.lazy().select("n", called).collect(engine="streaming").sort("n")["g"])


def by_pandas(table: pa.Table) -> list[Any]:
    frame = table.to_pandas()
    called = in_pandas.call(grade, frame["amount"], frame["name"])
    return [None if pd.isna(value) else value for value in called]


def by_datafusion(table: pa.Table) -> list[Any]:
    context = datafusion.SessionContext()
    in_datafusion.register(context, grade)
    context.from_arrow(table, "t")
    answer = context.sql("select grade(amount, name) g from t order by n").to_pydict()
    return list(answer["g"])


def by_ibis(table: pa.Table) -> list[Any]:
    called = in_ibis.function(grade)
    t = ibis.memtable(table)
    asked = t.select("n", g=called(t.amount, t.name)).order_by("n")
    answers = [back_end.connect().to_pyarrow(asked)["g"] for back_end in (ibis.duckdb, ibis.polars)]
    assert answers[0].to_pylist() == answers[1].to_pylist()
    return list(answers[0].to_pylist())


def by_snowmelt(table: pa.Table) -> list[Any]:
    query = sm.sql("select n, grade(amount, name) g from t order by n", udfs=[grade], t=table)
    return list(query.arrow()["g"].to_pylist())


ENGINES: list[Callable[[pa.Table], list[Any]]] = [
    by_duckdb,
    by_polars,
    by_polars_streaming,
    by_pandas,
    by_datafusion,
    by_ibis,
    by_snowmelt,
]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
def test_all_engines_give_the_same_values(
    engine: Callable[[pa.Table], list[Any]], table: pa.Table, expected: list[str | None]
) -> None:
    assert engine(table) == expected


def test_arrays_of_all_types_come_back_as_they_went() -> None:
    from datetime import date, datetime, time, timedelta
    from decimal import Decimal

    kinds = {
        bool: [True, None],
        int: [1, None, -(2**63)],
        float: [1.5, None, float("inf")],
        str: ["", "ä" * 1000, None],
        bytes: [b"\0\xff", None],
        Decimal: [Decimal("1.5"), None],
        date: [date(1, 1, 1), None],
        datetime: [datetime(2026, 1, 2, 3), None],
        time: [time(1, 2), None],
        timedelta: [timedelta(days=-1), None],
        list[int]: [[1, 2], [], None],
    }
    for kind, values in kinds.items():

        def same(x):  # type: ignore[no-untyped-def]
            return x

        identity = sm.udf(name="same", args=[kind | None], returns=kind | None)(same)
        with Remote(identity) as called:
            array = pa.array(values * 3, called.returns)
            assert called(array) == array, kind
            # Offsets that are not zero, and no rows.
            assert called(array.slice(2, 4)) == array.slice(2, 4), kind
            assert called(array.slice(0, 0)) == array.slice(0, 0), kind
            assert called(pa.chunked_array([array, array])) == pa.concat_arrays([array, array])
            if kind in (int, str):
                assert called(array.dictionary_encode()) == array, kind


def test_arguments_are_widened_and_never_narrowed() -> None:
    called = remote(doubled)
    for small in (pa.int8(), pa.int32(), pa.uint32()):
        assert called(pa.array([1, 2], small)).to_pylist() == [2, 4]
    for other in (pa.array([1.0]), pa.array(["1"]), pa.array([1], pa.uint64())):
        with pytest.raises(sm.Error) as refused:
            called(other)
        assert refused.value.code == "SM-0103", str(refused.value)
    with pytest.raises(sm.Error, match="takes 1 arguments"):
        called(pa.array([1]), pa.array([1]))
    # A value that has no exact form as a float is refused too.
    with pytest.raises(sm.Error) as refused:
        remote(grade)(pa.array([2**53 + 1]), pa.array(["x"]))
    assert refused.value.code == "SM-0109"


def test_the_users_error_names_file_line_and_row_in_each_engine(table: pa.Table) -> None:
    numbers = table.select(["n"])
    with duckdb.connect() as connection:
        in_duckdb.register(connection, refuses_seven)
        connection.register("t", numbers)
        with pytest.raises(duckdb.Error) as failed:
            connection.sql("select refuses_seven(n) from t").fetchall()
    text = str(failed.value)
    frame: Any = pl.from_arrow(numbers)
    with pytest.raises(sm.FunctionError) as raised:
        frame.select(in_polars.expression(refuses_seven, "n"))
    for shown in (text, str(raised.value)):
        assert "SM-0201" in shown and "ValueError: seven" in shown, shown
        assert "test_engines.py:" in shown and "n = 7" in shown, shown


def test_an_instance_that_dies_is_told_and_is_replaced() -> None:
    called = remote(dies_at_seven)
    with pytest.raises(sm.FunctionError) as died:
        called(pa.array([7]))
    assert died.value.code == "SM-0210"
    assert "3" in died.value.message, "the platform knows the exit code"
    assert called(pa.array([8])).to_pylist() == [8]
    with pytest.raises(sm.FunctionError) as memory:
        remote(takes_memory)(pa.array([1 << 30]))
    assert memory.value.code == "SM-0213", str(memory.value)
    with pytest.raises(sm.FunctionError) as late:
        remote(sleeps)(pa.array([60]))
    assert late.value.code == "SM-0212"


def test_only_a_repeatable_function_is_called_again_after_a_loss() -> None:
    @sm.udf
    def dies_at_times(n: int) -> int:
        import os

        # Another instance, another number.
        if os.urandom(1)[0] < 128:
            os._exit(3)
        return n

    def failures(repeatable: bool) -> int:
        failed = 0
        with Remote(dies_at_times, instances=1, repeatable=repeatable) as called:
            for _ in range(60):
                try:
                    called(pa.array([1]))
                except sm.FunctionError as error:
                    assert error.code == "SM-0210"
                    failed += 1
        return failed

    # Half of the calls fail, or an eighth. Both differ from their mean by five deviations less than
    # once in a million runs.
    assert failures(repeatable=False) > failures(repeatable=True)


def test_many_threads_share_a_bound_of_instances() -> None:
    @sm.udf
    def process(n: int) -> int:
        import sys
        import time
        import uuid

        time.sleep(0.01)
        # A number of the process.
        return sys.__dict__.setdefault("number", uuid.uuid4().int >> 72)  # type: ignore[no-any-return]

    with Remote(process, instances=3) as called, ThreadPoolExecutor(200) as threads:
        seen = set(threads.map(lambda n: called(pa.array([n]))[0].as_py(), range(400)))
    assert 1 <= len(seen) <= 3


def test_a_column_is_sent_in_pieces_to_several_instances() -> None:
    with Remote(doubled, instances=2) as called:
        array = pa.array(np.arange(3_000_000))
        assert called(array) == pa.array(np.arange(3_000_000) * 2)
        text = pa.array(["x" * (1 << 20)] * 100)
        assert (
            remote(grade)(pa.array([1.0] * 100), text).to_pylist() == [f"{'x' * (1 << 20)}:2"] * 100
        )


def test_cancelled_calls_end_their_instances() -> None:
    @sm.udf(timeout="10m")
    def waits(n: int) -> int:
        import time

        time.sleep(n)
        return n

    called = Remote(waits)
    failures: list[BaseException] = []

    def call() -> None:
        try:
            called(pa.array([600]))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    wait_for("the call to run", lambda: called.busy == 1)
    called.close()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert isinstance(failures[0], sm.Error)


def test_a_function_is_pickled_for_another_process() -> None:
    called = pickle.loads(pickle.dumps(remote(doubled)))
    assert called(pa.array([4])).to_pylist() == [8]
    called.close()


def test_a_registered_function_is_called_by_name_in_all_engines(table: pa.Table) -> None:
    @sm.udf
    def tripled(n: int) -> int:
        return n * 3

    @sm.udf(name="tripled")
    def with_one(n: int) -> int:
        return n * 3 + 1

    assert tripled.register() == 1
    first = remote("tripled")
    assert first(pa.array([5])).to_pylist() == [15]
    assert with_one.register() == 2
    assert first(pa.array([5])).to_pylist() == [15], "it stays with its version"
    assert remote("tripled")(pa.array([5])).to_pylist() == [16]
    numbers = table.select(["n"]).slice(0, 100)
    expected = [n * 3 + 1 for n in range(100)]
    asked = "select TRIPLED(n) as v from t order by n"
    assert sm.sql(asked, udfs=[], t=numbers).arrow()["v"].to_pylist() == expected
    frame: Any = pl.from_arrow(numbers)
    assert frame.select(in_polars.expression("tripled", "n")).to_series().to_list() == expected
    with pytest.raises(sm.Error, match="no function `trippled` is registered") as missing:
        remote("trippled")
    assert "tripled" in (missing.value.hint or "")


@pytest.mark.parametrize("way", ["down", "kill"])
def test_nothing_runs_for_an_engine_without_a_server(shared_folder: Path, way: str) -> None:
    @sm.udf(timeout="10m")
    def waits(n: int) -> int:
        import time

        time.sleep(n)
        return n

    failures: list[BaseException] = []

    def call() -> None:
        try:
            called(pa.array([600]))
        except BaseException as error:
            failures.append(error)

    server = Server(shared_folder)
    called = Remote(waits, instances=1)
    assert called(pa.array([0])).to_pylist() == [0]
    thread = threading.Thread(target=call)
    thread.start()
    wait_for("the call to run", lambda: called.busy == 1)
    if way == "down":
        server.run("down", "--grace", "0s")
    else:
        os.kill(server.status()["pid"], signal.SIGKILL)
    # The call ends with its instance, long before its own limit.
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert isinstance(failures[0], sm.Error)
    assert failures[0].code == "SM-0503" and "has ended" in failures[0].message, failures
    with pytest.raises(sm.Error) as refused:
        called(pa.array([0]))
    assert refused.value.code == "SM-0503"
    # The next start cleans up.
    server.run("up")
