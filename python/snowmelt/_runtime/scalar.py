"""Calls a function once for each row of a batch.

Invariant: every row is called exactly once, also after rows that fail; after enough failures for
the count, the rest of the batch is not called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import repeat, starmap
from typing import Any

from .._signature import Signature
from . import failure, process
from .failure import Failed
from .nulls import Rows
from .values import WrongRow, read_column, write_column, wrong_row

_FAILURES_COUNTED = 100

_HINT = 'return null for bad input with @sm.udf(on_error="null")'


@dataclasses.dataclass
class _Outcome:
    """Values of the called rows in order, and the positions at which the function raised."""

    values: list[Any]
    failed: set[int]
    first: tuple[int, BaseException] | None = None


class Scalar:
    """A row-by-row function, ready to be called with batches."""

    def __init__(self, function: Callable[..., Any], signature: Signature, on_error: str) -> None:
        self._function, self._signature = function, signature
        self._null_on_error = on_error == "null"

    def __call__(self, batch: Any) -> Any:
        """The result column of a `pyarrow.RecordBatch`. Raises `Failed`."""
        rows = Rows(batch, self._signature)
        columns = read_arguments(rows.columns, self._signature)
        arguments = zip(*columns) if columns else repeat((), rows.count)
        with process.user_code:
            outcome = self._call_all(iter(arguments), rows.count)
        if outcome.first is not None and not self._null_on_error:
            raise self._raised(outcome, columns, rows)
        return rows.spread(self._write(outcome, columns, rows))

    def _call_all(self, arguments: Iterator[Any], count: int) -> _Outcome:
        outcome = _Outcome([], set())
        values, most = outcome.values, count if self._null_on_error else _FAILURES_COUNTED
        while len(values) < count and len(outcome.failed) < most:
            error: BaseException
            try:
                # A list keeps the values added before an exception, and the iterator of arguments
                # is past the failed call: so the loop over the rows is C, and continues there.
                values.extend(starmap(self._function, arguments))
                if len(values) == count:
                    break
                error = StopIteration("it ended an iteration that is not its own")
            except SystemExit:
                raise
            except BaseException as raised:
                error = raised
            outcome.first = outcome.first or (len(values), error)
            outcome.failed.add(len(values))
            values.append(None)
        return outcome

    def _write(self, outcome: _Outcome, columns: list[list[Any]], rows: Rows) -> Any:
        returns = self._signature.returns
        try:
            return write_column(outcome.values, returns, outcome.failed.__contains__)
        except WrongRow as wrong:
            given = self._shown(columns, wrong.row)
            wrong.row = rows.number(wrong.row)
            raise wrong_row(wrong, self._signature.name, returns, input=given) from None

    def _raised(self, outcome: _Outcome, columns: list[list[Any]], rows: Rows) -> Failed:
        assert outcome.first is not None
        position, error = outcome.first
        return failure.from_exception(
            error,
            "raised",
            self._signature.name,
            row=rows.number(position),
            input=self._shown(columns, position),
            failed=len(outcome.failed),
            calls=len(outcome.values),
            # An error of the machine says nothing about the input.
            hint=failure.hint(error) or (None if isinstance(error, OSError) else _HINT),
        )

    def _shown(self, columns: list[list[Any]], position: int) -> str | None:
        return shown_arguments(self._signature, [column[position] for column in columns])


def read_arguments(columns: list[Any], signature: Signature) -> list[list[Any]]:
    """The Python values of argument columns. Raises `Failed`."""
    values = []
    for column, (name, element) in zip(columns, signature.arguments):
        try:
            values.append(read_column(column, element))
        except Exception as error:
            reason = f"`{name}` has values that Python cannot hold"
            raise failure.from_exception(error, "type", signature.name, hint=reason) from None
    return values


def shown_arguments(signature: Signature, values: list[Any]) -> str | None:
    """The arguments of a call, for its failure."""
    named = zip(signature.arguments, values)
    return ", ".join(failure.shown(name, value) for (name, _), value in named) or None
