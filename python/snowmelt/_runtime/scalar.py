"""Calls a function once for each row of a batch.

Invariant: a row with a null in an argument that does not take None gives null without a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._elements import Element
from .._signature import Signature
from . import failure, process
from .failure import Failed
from .values import WrongRow, read_column, write_column, wrong_row

# After so many failures the rest of a batch is not called: the count is for the user's eyes.
_FAILURES_COUNTED = 100


class Scalar:
    """A row-by-row function, ready to be called with batches."""

    def __init__(self, function: Callable[..., Any], signature: Signature, on_error: str) -> None:
        self._function, self._signature = function, signature
        self._null_on_error = on_error == "null"
        arguments = signature.arguments
        self._strict = [i for i, (_, element) in enumerate(arguments) if not element.nullable]

    def __call__(self, batch: Any) -> Any:
        """The result column of a `pyarrow.RecordBatch`. Raises `Failed`."""
        columns = self._columns(batch)
        skipped = self._skipped(batch, columns)
        rows = zip(*columns) if columns else (() for _ in range(batch.num_rows))
        with process.user_code():
            values, failed_rows = self._call_rows(rows, skipped)
        nothing_expected = skipped | failed_rows
        returns: Element = self._signature.returns
        try:
            return write_column(values, returns, nothing_expected.__contains__)
        except WrongRow as wrong:
            given = self._shown([column[wrong.row] for column in columns])
            raise wrong_row(wrong, self._signature.name, returns, input=given) from None

    def _columns(self, batch: Any) -> list[list[Any]]:
        columns = []
        for column, (name, element) in zip(batch.columns, self._signature.arguments):
            try:
                columns.append(read_column(column, element))
            except Exception as error:
                raise failure.from_exception(
                    error,
                    "type",
                    self._signature.name,
                    hint=f"the values of `{name}` cannot be given to Python",
                ) from None
        return columns

    def _skipped(self, batch: Any, columns: list[list[Any]]) -> set[int]:
        with_nulls = [columns[i] for i in self._strict if batch.column(i).null_count]
        return {row for column in with_nulls for row, value in enumerate(column) if value is None}

    def _call_rows(self, rows: Any, skipped: set[int]) -> tuple[list[Any], set[int]]:
        function = self._function
        values: list[Any] = []
        append = values.append
        failed_rows: set[int] = set()
        first: tuple[int, BaseException, Any] | None = None
        for row, arguments in enumerate(rows):
            if row in skipped:
                append(None)
                continue
            try:
                append(function(*arguments))
            except SystemExit:
                raise
            except BaseException as error:
                append(None)
                failed_rows.add(row)
                first = first or (row, error, arguments)
                if not self._null_on_error and len(failed_rows) >= _FAILURES_COUNTED:
                    break
        if first is not None and not self._null_on_error:
            raise self._raised(*first, failed=len(failed_rows), seen=len(values), skipped=skipped)
        return values, failed_rows

    def _raised(
        self,
        row: int,
        error: BaseException,
        arguments: Any,
        *,
        failed: int,
        seen: int,
        skipped: set[int],
    ) -> Failed:
        calls = seen - sum(skip < seen for skip in skipped)
        default = 'return null for bad input with @sm.udf(on_error="null")'
        return failure.from_exception(
            error,
            "raised",
            self._signature.name,
            row=row,
            input=self._shown(arguments),
            failed=failed,
            calls=calls,
            hint=failure.hint(error) or default,
        )

    def _shown(self, arguments: Any) -> str | None:
        pairs = zip(self._signature.arguments, arguments)
        return ", ".join(failure.shown(name, value) for (name, _), value in pairs) or None
