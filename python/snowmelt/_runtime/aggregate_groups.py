"""The states of the groups of one accumulator, and the calls of the user's class for them.

Invariants: a group without rows has no state until its result is asked for, so that no initial
state is ever merged. Rows with a null in an argument that does not accept None are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .._aggregate import Aggregate
from . import aggregate_state, failure, process
from .failure import Failed
from .nulls import Rows
from .values import WrongRow, as_declared, read_column, write_column, wrong_row

# A run of rows of one group: the group, its first row, and the row behind its last one.
_Run = tuple[int, int, int]


class Calls:
    """The calls of one class, for the groups of all accumulators."""

    def __init__(self, function: Aggregate) -> None:
        self.name, self.signature = function.signature.name, function.signature
        self.make = function.function
        self._bytes = aggregate_state.of(function.function)

    def update(self, states: list[Any], batch: Any) -> None:
        """Adds the rows of a `pyarrow.RecordBatch`, whose last column is the group. Raises
        `Failed`."""
        rows = Rows(batch, self.signature)
        *columns, groups = rows.columns
        if rows.count == 0:
            return
        if self.signature.batch == "scalar":
            self._update_rows(states, columns, groups, rows)
        else:
            self._update_runs(states, columns, groups)

    def _update_rows(self, states: list[Any], columns: list[Any], groups: Any, rows: Rows) -> None:
        values = [self._read(column, *named) for column, named in self._named(columns)]
        row = -1
        arguments: tuple[Any, ...] = ()
        try:
            with process.user_code:
                for group, arguments in zip(groups.to_pylist(), zip(*values)):
                    row += 1
                    state = states[group]
                    if state is None:
                        state = states[group] = self.make()
                    answer = state.update(*arguments)
                    if answer is not None:
                        self._check(answer, state, "update")
        except Failed:
            raise
        except BaseException as error:
            names = (name for name, _ in self.signature.arguments)
            shown = ", ".join(map(failure.shown, names, arguments))
            raise self._raised(error, row=rows.number(row), input=shown) from None

    def _read(self, column: Any, name: str, element: Any) -> list[Any]:
        try:
            return read_column(column, element)
        except Exception as error:
            hint = f"`{name}` has values that Python cannot hold"
            raise failure.from_exception(error, "type", self.name, hint=hint) from None

    def _update_runs(self, states: list[Any], columns: list[Any], groups: Any) -> None:
        from .vectorised import give

        order, runs = _runs(groups)
        named = self._named(columns)
        columns = [as_declared(column, element.arrow_type()) for column, (_, element) in named]
        if order is not None:
            columns = [column.take(order) for column in columns]
        given = [
            give(self.signature.batch, column, element)
            for column, (_, element) in self._named(columns)
        ]
        for group, first, end in runs:
            part = [_part(self.signature.batch, values, first, end) for values in given]
            try:
                with process.user_code:
                    state = states[group]
                    if state is None:
                        state = states[group] = self.make()
                    answer = state.update(*part)
                    if answer is not None:
                        self._check(answer, state, "update")
            except Failed:
                raise
            except BaseException as error:
                shown = self._shown(columns, first, end)
                raise self._raised(error, input=shown) from None

    def _named(self, columns: list[Any]) -> Iterator[tuple[Any, tuple[str, Any]]]:
        return zip(columns, self.signature.arguments)

    def _shown(self, columns: list[Any], first: int, end: int) -> str:
        count = min(end - first, 5)
        heads = [
            failure.shown(name, column.slice(first, count).to_pylist())
            for column, (name, _) in self._named(columns)
        ]
        return f"{', '.join(heads)} (the first of {end - first} rows of a group)"

    def merge(self, states: list[Any], batch: Any) -> None:
        """Merges the states of a `pyarrow.RecordBatch` into those of their groups. Raises
        `Failed`."""
        others, groups = (column.to_pylist() for column in batch.columns)
        try:
            with process.user_code:
                for data, group in zip(others, groups):
                    if data is None:
                        continue
                    other, state = self._bytes.loads(data), states[group]
                    if state is None:
                        states[group] = other
                        continue
                    answer = state.merge(other)
                    if answer is not None:
                        self._check(answer, state, "merge")
        except Failed:
            raise
        except BaseException as error:
            raise self._raised(error) from None

    def states(self, states: list[Any], most_bytes: int) -> Any:
        """The bytes of the first states, at least one, as a column. Raises `Failed`."""
        taken: list[bytes | None] = []
        size = 0
        try:
            with process.user_code:
                for state in states:
                    data = None if state is None else self._bytes.dumps(state)
                    size += len(data or b"")
                    if size > most_bytes and taken:
                        break
                    taken.append(data)
        except aggregate_state.NotBytes as error:
            raise aggregate_state.failed(self.name, error) from None
        except BaseException as error:
            raise self._raised(error) from None
        return pa.array(taken, pa.large_binary())

    def results(self, states: list[Any]) -> Any:
        """The results of states, as a column. Raises `Failed`."""
        returns = self.signature.returns
        try:
            with process.user_code:
                values = [(self.make() if state is None else state).finish() for state in states]
        except BaseException as error:
            raise self._raised(error) from None
        try:
            return write_column(values, returns, lambda _: False)
        except WrongRow as wrong:
            failed = wrong_row(wrong, self.name, returns)
            # It counts groups, and would be shown as a row.
            del failed.message["row"]
            raise failed from None

    def _check(self, answer: Any, state: Any, method: str) -> None:
        """A method that returns another state instead of changing its own would lose it."""
        if answer is not state:
            reason = f"{method}() returned {type(answer).__name__}"
            hint = f"{method}() changes self, and returns nothing"
            raise Failed("type", reason, function=self.name, hint=hint)

    def _raised(self, error: BaseException, **more: Any) -> Failed:
        return failure.from_exception(error, "raised", self.name, failed=1, calls=1, **more)


def _runs(groups: Any) -> tuple[Any, list[_Run]]:
    """The order that puts the rows of each group together, in the order of the rows, and the runs
    then; no order if there is one group."""
    ends = pc.min_max(groups)
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first == last:
        return None, [(first, 0, len(groups))]
    order = pc.sort_indices(groups)
    encoded = pc.run_end_encode(groups.take(order))
    ends = encoded.run_ends.to_pylist()
    return order, list(zip(encoded.values.to_pylist(), [0, *ends], ends))


def _part(form: str, values: Any, first: int, end: int) -> Any:
    if form == "arrow":
        return values.slice(first, end - first)
    return values.iloc[first:end] if form == "pandas" else values[first:end]
