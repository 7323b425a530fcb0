"""What engines are told of a function, with one that is computed in this process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import snowmelt as sm
from snowmelt import _arguments, _called, _remote, _server
from snowmelt._called import Called
from snowmelt._lease import Lost
from snowmelt._server import Server
from snowmelt.engines import Remote, remote
from snowmelt.engines import duckdb as in_duckdb
from snowmelt.engines import pandas as in_pandas
from snowmelt.engines import polars as in_polars
from snowmelt.errors import make

ROWS = 1000
TABLE = pa.table({"i": range(ROWS)})


class Local(Remote):
    """A function of this process in place of one in sandboxes."""

    def __init__(self, function: Callable[..., Any], deterministic: bool, arguments: int = 1):
        fields = [pa.field(f"x{number}", pa.int64()) for number in range(arguments)]
        self.name = function.__name__
        self.schema = pa.schema([*fields, pa.field("return", pa.float64())])
        self._arguments = pa.schema(fields)
        self.deterministic = deterministic
        self.calls = 0
        self._function = function

    def __call__(self, *columns: Any, rows: int | None = None) -> Any:
        self.calls += 1
        return self._function(*columns)


def rnd(column: Any) -> Any:
    return pa.array([random.random() for _ in range(len(column))])


def nothing() -> Any:
    raise AssertionError


RANDOM = Local(rnd, deterministic=False)
WITHOUT = Local(nothing, deterministic=False, arguments=0)


def check_values(values: list[float], above: float = 0.0) -> None:
    """Each row has its own value, and that of which the condition was true."""
    assert min(values) > above
    assert len(set(values)) == len(values)


FILTERED = "select y from (select rnd(i) y from t) s where y > 0.5"
TWICE = "select y a, y b from (select rnd(i) y from t) s"
CONSTANT = "select rnd(1) y from t"


def test_duckdb_calls_a_function_once_for_each_row() -> None:
    with duckdb.connect() as connection:
        in_duckdb.register(connection, RANDOM)
        connection.register("t", TABLE)
        check_values([y for (y,) in connection.sql(FILTERED).fetchall()], above=0.5)
        check_values([y for (y,) in connection.sql(CONSTANT).fetchall()])
        assert all(a == b for a, b in connection.sql(TWICE).fetchall())
        # A deterministic one is called once for a constant.
        same = Local(rnd, deterministic=True)
        in_duckdb.register(connection, same)
        assert len(set(connection.sql(CONSTANT).fetchall())) == 1 and same.calls == 1


def test_polars_calls_a_function_once_for_each_row() -> None:
    frame: Any = pl.from_arrow(TABLE)
    for engine in ("in-memory", "streaming"):
        called = in_polars.expression(RANDOM, "i")
        found = frame.lazy().with_columns(y=called).filter(pl.col("y") > 0.5).filter(i=pl.col("i"))
        check_values(found.collect(engine=engine)["y"].to_list(), above=0.5)
        found = frame.lazy().with_columns(y=called).select(a="y", b=pl.col("y") + 0)
        assert all(a == b for a, b in found.collect(engine=engine).iter_rows())
    for constant in (1, pl.lit(1)):
        # One value for all rows, or one for each piece of them.
        with pytest.raises(sm.Error, match="constants alone") as refused:
            in_polars.expression(RANDOM, constant)
        assert refused.value.code == "SM-0205"
        in_polars.expression(Local(rnd, deterministic=True), constant)


def test_datafusion_calls_a_function_once_for_each_row() -> None:
    datafusion = pytest.importorskip("datafusion")
    from snowmelt.engines import datafusion as in_datafusion

    context = datafusion.SessionContext()
    context.from_arrow(TABLE, "t")
    in_datafusion.register(context, RANDOM)
    check_values(context.sql(FILTERED).to_pydict()["y"], above=0.5)
    check_values(context.sql(CONSTANT).to_pydict()["y"])
    same = Local(rnd, deterministic=True)
    in_datafusion.register(context, same, "same")
    twice = context.sql("select same(i) a, same(i) b from t").to_pydict()
    assert twice["a"] == twice["b"]
    assert len(context.sql("select same(1) y from t").to_pydict()["y"]) == ROWS
    with pytest.raises(sm.Error, match="DataFusion") as refused:
        in_datafusion.register(context, WITHOUT)
    assert refused.value.code == "SM-0205"


def test_ibis_calls_a_function_once_for_each_row_and_with_nulls() -> None:
    ibis = pytest.importorskip("ibis")
    from snowmelt.engines import ibis as in_ibis

    called = in_ibis.function(RANDOM)
    asked = ibis.memtable(TABLE).mutate(y=lambda t: called(t.i)).filter(lambda t: t.y > 0.5)
    is_null = in_ibis.function(Local(nulls, deterministic=True))
    holes = ibis.memtable(pa.table({"i": [1, None, 3]}))
    for back_end in (ibis.duckdb, ibis.polars):
        connection = back_end.connect()
        check_values(connection.to_pyarrow(asked)["y"].to_pylist(), above=0.5)
        found = connection.to_pyarrow(holes.select(y=is_null(holes.i)))
        assert found["y"].to_pylist() == [0.0, 1.0, 0.0]
    with pytest.raises(sm.Error, match="ibis"):
        in_ibis.function(WITHOUT)


def nulls(column: Any) -> Any:
    return column.is_null().cast(pa.float64())


def test_names_that_duckdb_keeps_are_refused_with_another_one() -> None:
    with duckdb.connect() as connection:
        connection.sql("create macro of_the_user(x) as x + 1")
        for name in ("count", "abs", "sum", "of_the_user"):
            with pytest.raises(sm.Error, match=f"of the name `{name}`") as refused:
                in_duckdb.register(connection, RANDOM, name)
            assert refused.value.code == "SM-0110"
            assert f'"my_{name}"' in (refused.value.hint or "")
        for name in ("hour", "mine", "mine"):
            in_duckdb.register(connection, RANDOM, name)
            assert len(connection.sql(f"select {name}(1)").fetchall()) == 1
        with pytest.raises(sm.Error, match="DuckDB"):
            in_duckdb.register(connection, WITHOUT)


def test_columns_of_pandas_are_aligned_or_refused() -> None:
    def added(one: Any, other: Any) -> Any:
        return pa.array([a + b for a, b in zip(one.to_pylist(), other.to_pylist())], pa.float64())

    called = Local(added, deterministic=True, arguments=2)
    left, right = pd.Series([1, 2], index=[5, 7]), pd.Series([10, 20], index=[5, 7])
    found = in_pandas.call(called, left, right)
    assert found.to_dict() == {5: 11.0, 7: 22.0}
    for other in ([10, 20], np.array([10, 20]), pd.array([10, 20]), pa.array([10, 20])):
        assert in_pandas.call(called, left, other).to_dict() == {5: 11.0, 7: 22.0}
    for wrong, reason in [
        (5, "argument 2 of `added` is a builtins.int"),
        ("ab", "builtins.str"),
        (np.float64(1), "float64"),
        (left.to_frame(), "pandas.*DataFrame"),
        ({"a": 1}, "builtins.dict"),
        (np.zeros((2, 2)), "no column of one type"),
        (["a", 1], "no column of one type"),
        (right.sort_index(ascending=False), "different indexes"),
        (pd.Series([10, 20]), "different indexes"),
    ]:
        with pytest.raises(sm.Error, match=reason) as refused:
            in_pandas.call(called, left, wrong)
        assert refused.value.code == "SM-0103", wrong


def leased(**options: Any) -> Remote:
    schema = pa.schema([pa.field("x", pa.int64()), pa.field("return", pa.int64())])
    return Remote(Called("f", {"registered": {"name": "f", "version": 1}}, schema), **options)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "current", lambda: Server("/nowhere/api.sock", None, None))


def test_arguments_that_are_no_columns_are_refused(nowhere: None) -> None:
    two = pa.schema([pa.field(name, pa.int64()) for name in ("x", "y", "return")])
    called = Remote(Called("f", {}, two))
    for columns, reason in [
        ((5, pa.array([1])), "argument 1 of `f` is a builtins.int"),
        ((pa.array([1]), [1]), "argument 2 of `f` is a builtins.list"),
        ((pa.array([1]), pa.array([1, 2])), "columns of 1 and 2 rows"),
    ]:
        with pytest.raises(sm.Error, match=reason) as refused:
            called(*columns)
        assert refused.value.code == "SM-0103"


LIMIT = 2**53


@pytest.mark.parametrize(
    ("value", "kind", "is_kept"),
    [
        ("0.1", pa.decimal128(10, 2), True),
        ("100.1", pa.decimal128(38, 20), True),
        ("1e-25", pa.decimal128(38, 25), True),
        (str(LIMIT), pa.decimal128(38, 0), True),
        (str(2**60), pa.decimal128(38, 0), True),
        (str(LIMIT + 1), pa.decimal128(38, 0), False),
        ("90071992547409.93", pa.decimal128(38, 2), False),
        ("0." + "3" * 20, pa.decimal128(38, 20), False),
        (str(10**40 + 1), pa.decimal256(60, 0), False),
    ],
)
def test_decimals_are_floats_with_all_of_their_digits_or_refused(
    nowhere: None, value: str, kind: pa.DataType, is_kept: bool
) -> None:
    decimals = pa.array([Decimal(1), None, Decimal(value)], kind)
    pairs = pa.StructArray.from_arrays([decimals], names=["n"])
    for array in (decimals, decimals.dictionary_encode(), pa.array([decimals.to_pylist()]), pairs):
        wanted: Any = pa.float64()
        if pa.types.is_list(array.type):
            array, wanted = pa.array([decimals.to_pylist()], pa.list_(kind)), pa.list_(wanted)
        if pa.types.is_struct(array.type):
            wanted = pa.struct([("n", wanted)])
        schema = pa.schema([pa.field("x", wanted)])
        if is_kept:
            made = _arguments.batch("f", [array], schema, None).column(0)
            flat = made.flatten()[0] if pa.types.is_struct(wanted) else made
            flat = flat.flatten() if pa.types.is_list(wanted) else flat
            assert flat.to_pylist() == [1.0, None, float(value)], array.type
            continue
        with pytest.raises(sm.Error, match="no exact form") as refused:
            _arguments.batch("f", [array], schema, None)
        assert refused.value.code == "SM-0109"


def test_integers_and_decimals_for_smaller_floats_are_exact_too() -> None:
    schema = pa.schema([pa.field("x", pa.float32())])
    for array, is_kept in [
        (pa.array([2**24]), True),
        (pa.array([2**24 + 1]), False),
        (pa.array([Decimal("1234.5")]), True),
        (pa.array([Decimal("0.1")]), True),
        (pa.array([Decimal("123456.789")]), False),
    ]:
        if is_kept:
            assert _arguments.batch("f", [array], schema, None).num_rows == 1
            continue
        with pytest.raises(sm.Error) as refused:
            _arguments.batch("f", [array], schema, None)
        assert refused.value.code == "SM-0109"


def test_a_function_whose_code_has_changed_is_sent_again(nowhere: None) -> None:
    names: dict[str, Any] = {"sm": sm, "factor": 2}
    exec("@sm.udf\ndef scaled(n: int) -> int:\n    return n * factor\n", names)
    first = remote(names["scaled"])
    assert remote(names["scaled"]) is first
    names["factor"] = 3
    second = remote(names["scaled"])
    assert second is not first and remote(names["scaled"]) is second
    sent = [one._request["runs"]["udf"]["source"]["code"]["data"] for one in (first, second)]
    assert sent[0] != sent[1]


class Instance:
    """An instance that gives its arguments, or ends."""

    since = 0.0

    def __init__(self, ends_with: str | None) -> None:
        self._ends_with = ends_with

    def call(self, batch: Any, _: int) -> Any:
        if self._ends_with is not None:
            raise Lost(make(self._ends_with, "ended"))
        return batch.column(0)

    def is_idle(self) -> bool:
        return True

    def end(self) -> None:
        pass

    give_back = end


@pytest.mark.parametrize(
    ("code", "is_repeated"),
    [("SM-0210", True), ("SM-0211", True), ("SM-0212", False), ("SM-0213", False)],
)
def test_a_repeatable_function_is_called_again_after_a_signal_too(
    nowhere: None, monkeypatch: pytest.MonkeyPatch, code: str, is_repeated: bool
) -> None:
    for repeatable in (True, False):
        instances = [Instance(None), Instance(code), Instance(code)]
        called = leased(repeatable=repeatable, instances=1)
        monkeypatch.setattr(called, "lease", instances.pop)
        if repeatable and is_repeated:
            assert called(pa.array([7])).to_pylist() == [7]
            continue
        with pytest.raises(sm.Error) as ended:
            called(pa.array([7]))
        assert ended.value.code == code and len(instances) == 2


def test_a_function_that_follows_leases_the_last_version(
    nowhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = leased()._called

    def registered(name: str, *, follows: bool = False, platform: Any = None) -> Called:
        return Called(name, last.runs, last.schema, follows=follows)

    monkeypatch.setattr(_called, "registered", registered)
    asked: list[Any] = []

    def lease(_: Any, request: Any, *__: Any, **___: Any) -> Instance:
        asked.append(request["runs"]["registered"]["version"])
        return Instance(None)

    monkeypatch.setattr(_remote, "Lease", lease)
    for follow, versions in ((False, [1, 1]), (True, [1, 2])):
        called = remote("f", follow=follow)
        asked.clear()
        for version in (1, 2):
            last = Called("f", {"registered": {"name": "f", "version": version}}, last.schema)
            # An instance is used for some time, whatever its version.
            monkeypatch.setattr(Instance, "since", time.monotonic())
            called(pa.array([1]))
            called(pa.array([1]))
            monkeypatch.setattr(Instance, "since", 0.0)
            called(pa.array([1]))
        assert asked == (versions if follow else [1])
    other = pa.schema([pa.field("x", pa.string()), pa.field("return", pa.int64())])
    last = Called("f", {"registered": {"name": "f", "version": 3}}, other)
    with pytest.raises(sm.Error, match="version 3 of `f` has other types") as refused:
        called(pa.array([1]))
    assert refused.value.code == "SM-0103"
    with pytest.raises(sm.Error, match="given by name"):
        remote(sm.udf(identity), follow=True)


def identity(n: int) -> int:
    return n


class Session:
    """What `register` needs of a session of Spark."""

    def __init__(self) -> None:
        self.udf, self.made = self, {}  # type: ignore[var-annotated]

    def register(self, name: str, made: Any) -> None:
        self.made[name] = made


def test_spark_is_told_of_functions_that_are_not_deterministic() -> None:
    pytest.importorskip("pyspark")
    from snowmelt.engines import spark as in_spark

    session = Session()
    grouped = Local(rnd, deterministic=False)
    grouped._arguments = pa.schema([pa.field("x", pa.list_(pa.int64()))])
    in_spark.register(session, RANDOM)
    in_spark.register_aggregate(session, grouped, "grouped")
    in_spark.register(session, Local(rnd, deterministic=True), "same")
    told = {name: made.deterministic for name, made in session.made.items()}
    assert told == {"rnd": False, "grouped": True, "same": True}
    with pytest.raises(sm.Error, match="Spark"):
        in_spark.register(session, WITHOUT)
