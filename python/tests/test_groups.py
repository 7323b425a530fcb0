"""Groups of rows as arguments, with a function in place of the sandbox."""

from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pytest

import snowmelt as sm
from snowmelt import _groups
from snowmelt._arguments import batch


class Order(TypedDict):
    customer: int
    amount: float


class Total(NamedTuple):
    customer: int
    amount: float


class Here:
    """Calls a function in this process, as `Remote` does in sandboxes."""

    def __init__(self, udf: Any) -> None:
        from snowmelt._runtime.udf import evaluator

        self._evaluate = evaluator(udf.function, udf.signature, "raise")
        schema = udf.signature.arrow_schema()
        self.name, self.arguments = udf.signature.name, pa.schema(list(schema)[:-1])
        self.returns = schema.field("return").type

    def __call__(self, *columns: Any) -> Any:
        return self._evaluate(batch(self.name, list(columns), self.arguments))


@sm.udf
def totals(orders: list[Order]) -> list[Total]:
    amounts: dict[int, float] = {}
    for order in orders:
        amounts[order["customer"]] = amounts.get(order["customer"], 0.0) + order["amount"]
    return [Total(*item) for item in amounts.items()]


RETURNED = pa.schema([("customer", pa.int64()), ("amount", pa.float64())])


def table(customers: list[int | None], amounts: list[float]) -> pa.Table:
    columns = {"amount": amounts, "other": ["x"] * len(amounts)}
    return pa.table({**columns, "customer": pa.array(customers, pa.int32())})


def test_rows_of_a_group_have_the_named_columns_and_are_widened() -> None:
    called = Here(totals)
    fields = _groups.check_rows("totals", called.arguments, called.returns, 1)
    assert [field.name for field in fields] == ["customer", "amount"]
    # Chunks, one of which has another offset.
    rows = table([1, 2, 1], [0.5, 1.0, 2.0])
    chunked = pa.concat_tables([rows, rows.slice(1)])
    found = _groups.call(called, [chunked], RETURNED)
    assert found.to_pylist() == [
        {"customer": 1, "amount": 4.5},
        {"customer": 2, "amount": 2.0},
    ]
    assert _groups.call(called, [chunked.slice(0, 0)], RETURNED).num_rows == 0


def test_a_column_that_is_missing_or_twice_there_is_refused() -> None:
    called, rows = Here(totals), table([1], [1.0])
    for wrong in (
        rows.drop_columns(["amount"]),
        rows.append_column("amount", pa.array([1.0])),
    ):
        with pytest.raises(sm.Error, match="needs one column `amount`") as refused:
            _groups.call(called, [wrong], RETURNED)
        assert refused.value.code == "SM-0103"


def test_functions_that_are_not_of_groups_are_refused() -> None:
    @sm.udf
    def plain(n: int) -> int:
        return n

    called, of_rows = Here(plain), Here(totals)
    for check in (
        lambda: _groups.check_lists("plain", called.arguments),
        lambda: _groups.check_rows("plain", called.arguments, called.returns, 1),
        lambda: _groups.check_rows("totals", of_rows.arguments, called.returns, 1),
        lambda: _groups.check_rows("totals", of_rows.arguments, of_rows.returns, 2),
        lambda: _groups.check_lists("none", pa.schema([])),
    ):
        with pytest.raises(sm.Error) as refused:
            check()
        assert refused.value.code == "SM-0205"


def test_a_list_has_all_values_of_a_group_with_nulls() -> None:
    values = pa.array([1, None, 3, 4]).slice(1)
    assert _groups.as_list(values).to_pylist() == [[None, 3, 4]]
    assert _groups.as_list(values.slice(0, 0)).to_pylist() == [[]]


def test_a_row_that_is_none_is_an_error_and_none_for_all_is_no_row() -> None:
    @sm.udf(returns=list[Total])
    def holes(orders: list[Order]):  # type: ignore[no-untyped-def]
        return [None]

    @sm.udf
    def nothing(orders: list[Order]) -> list[Total] | None:
        return None

    rows = table([1], [1.0])
    with pytest.raises(Exception, match="None"):
        _groups.call(Here(holes), [rows], RETURNED)
    assert _groups.call(Here(nothing), [rows], RETURNED).num_rows == 0
