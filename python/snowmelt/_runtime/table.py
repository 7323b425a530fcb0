"""Calls a table function for the rows of a batch: the result of each is a list of rows.

Invariant: an answer is for the first rows of the batch, in order, and for at least one: it ends
behind the row with which it has enough bytes. The platform sends the other rows again.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._signature import Signature
from . import failure, process
from .failure import Failed
from .nulls import Rows
from .scalar import read_arguments, shown_arguments
from .values import WrongRow, as_mapping, described, write_column

# From so many bytes on, an answer ends with the row that it has reached.
ANSWER_BYTES = 16 << 20

# The most bytes that one row of the batch may give: it is one value of a message.
MAX_BYTES = 64 << 20

# Yielded rows that are checked and become columns at a time: more while they are short.
_FIRST_ROWS, _MAX_ROWS = 64, 8192
_CHUNK_BYTES = 1 << 20


class Refused(Exception):
    """What the function gave cannot be rows of its columns. `row` is the yielded row, from 0 in the
    answer, if it is one of them."""

    def __init__(self, reason: str, kind: str = "type", row: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.kind, self.row = reason, kind, row


class Table:
    """A table function, ready to be called with batches."""

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        self._function, self._signature = function, signature
        self._columns = signature.returns.fields[0][1].fields

    def __call__(self, batch: Any) -> Any:
        """Lists of rows for the first rows of a `pyarrow.RecordBatch`. Raises `Failed`."""
        rows = Rows(batch, self._signature)
        columns = read_arguments(rows.columns, self._signature)
        output = _Output(self._columns)
        try:
            while output.lists < rows.count and output.bytes < ANSWER_BYTES:
                self._call(output, [column[output.lists] for column in columns], rows)
            lists = output.column()
        except Refused as refused:
            raise self._refused(refused, output, columns, rows) from None
        if output.lists < rows.count:
            # Also for the rows before it for which the function is not called.
            answered = rows.number(output.lists - 1) + 1
            rows = Rows(batch.slice(0, answered), self._signature)
        return rows.spread(lists)

    def _call(self, output: _Output, given: list[Any], rows: Rows) -> None:
        """Adds the rows that the function gives for one row of the batch. Raises `Refused` and
        `Failed`."""
        iterator: Any = None
        try:
            with process.user_code:
                iterator = _iterator(self._function(*given))
                output.take(iterator)
        except Refused:
            with contextlib.suppress(Exception):
                iterator.close()
            raise
        except BaseException as error:
            raise failure.from_exception(
                error,
                "raised",
                self._signature.name,
                row=rows.number(output.lists),
                input=self._input(given, output.in_list),
                failed=1,
                calls=output.lists + 1,
            ) from None
        output.end_list()

    def _refused(
        self, refused: Refused, output: _Output, columns: list[list[Any]], rows: Rows
    ) -> Failed:
        position, reason = output.lists, refused.reason
        if refused.row is not None:
            # Rows are checked in groups: it may be one of an earlier call.
            position, number = output.place(refused.row)
            reason = f"row {number} of its output: {reason}"
        return Failed(
            refused.kind,
            reason,
            function=self._signature.name,
            row=rows.number(position),
            input=self._input([column[position] for column in columns], 0),
            hint=_SIZE_HINT if refused.kind == "size" else None,
        )

    def _input(self, given: list[Any], yielded: int) -> str | None:
        shown = shown_arguments(self._signature, given)
        if not yielded:
            return shown
        after = f"after {yielded} row{'s' if yielded > 1 else ''} of output"
        return after if shown is None else f"{shown}, {after}"


_SIZE_HINT = "yield fewer or shorter rows for one row, or give the function parts of it"


def _iterator(given: Any) -> Iterator[Any]:
    """The rows that a function returned. A text or a mapping is one value, and a mistake."""
    if not isinstance(given, (str, bytes, bytearray, Mapping)):
        try:
            return iter(given)
        except TypeError:
            pass
    hint = "; return [] for no rows" if given is None else ""
    raise Refused(f"expected rows to iterate over, got {described(given)}{hint}")


class _Output:
    """The lists of rows of one answer, as columns, with the last yielded rows still as values."""

    def __init__(self, columns: tuple[tuple[str, Any], ...]) -> None:
        self._columns = columns
        self._width = len(columns)
        # A value alone is a row of one column, unless it is a tuple.
        self._is_single = self._width == 1
        self._pending: list[Any] = []
        self._chunks: list[list[Any]] = [[] for _ in columns]
        self._ends = [0]
        self._written = 0
        self._step = _FIRST_ROWS
        self.bytes = 0

    @property
    def lists(self) -> int:
        """The number of complete lists."""
        return len(self._ends) - 1

    @property
    def in_list(self) -> int:
        """Rows of the list that is not complete."""
        return self._written + len(self._pending) - self._ends[-1]

    def place(self, row: int) -> tuple[int, int]:
        """The list of a row, and its place there."""
        at = bisect_right(self._ends, row) - 1
        return at, row - self._ends[at]

    def take(self, rows: Iterator[Any]) -> None:
        """Adds all rows to the last list. Raises `Refused`, and what the iterator raises."""
        pending, width, begin = self._pending, self._width, self.bytes
        for row in rows:
            if type(row) is not tuple or len(row) != width:
                row = self._values(row)
            pending.append(row)
            if len(pending) >= self._step:
                self._write()
                if self.bytes - begin > MAX_BYTES:
                    self._refuse_size()

    def _refuse_size(self) -> None:
        reason = f"more than {MAX_BYTES >> 20} MiB for one row: {self.in_list:,} rows of output"
        raise Refused(f"{reason} so far", "size")

    def end_list(self) -> None:
        """Completes the last list."""
        self._ends.append(self._written + len(self._pending))

    def _values(self, row: Any) -> tuple[Any, ...]:
        """The values of a row, in the order of the columns."""
        names = [name for name, _ in self._columns]
        found = as_mapping(row)
        if self._is_single and (found is None or names[0] not in found):
            if not isinstance(row, tuple):
                return (row,)
        if found is not None:
            if set(found) != set(names):
                reason = f"with the columns {', '.join(map(str, found)) or 'of no name'}"
                raise self._wrong(f"got {type(row).__name__} {reason}")
            return tuple(found[name] for name in names)
        if not isinstance(row, (tuple, list)):
            raise self._wrong(f"got {described(row)}")
        if len(row) != len(names):
            raise self._wrong(f"got {len(row)} values: {described(row)}")
        return tuple(row)

    def _wrong(self, got: str) -> Refused:
        number = self._written + len(self._pending)
        names = ", ".join(name for name, _ in self._columns)
        count = f"{self._width} column{'s' if self._width > 1 else ''}"
        return Refused(f"expected a row of {count} ({names}), {got}", row=number)

    def _write(self) -> None:
        """Makes columns of the rows that are values."""
        values = zip(*self._pending)
        size = 0
        for (name, element), column, chunks in zip(self._columns, values, self._chunks):
            try:
                made = write_column(list(column), element, _never)
            except WrongRow as wrong:
                number = self._written + wrong.row
                raise Refused(f"column `{name}`: {wrong.reason}", row=number) from None
            size += made.nbytes
            chunks.append(made)
        self._written += len(self._pending)
        self.bytes += size
        self._pending.clear()
        if size < _CHUNK_BYTES:
            self._step = min(self._step * 2, _MAX_ROWS)

    def column(self) -> Any:
        """The lists, as a `pyarrow.ListArray`. Raises `Refused`."""
        import pyarrow as pa

        if self._pending:
            self._write()
        arrays = [
            pa.concat_arrays(chunks) if chunks else pa.array([], element.arrow_type())
            for (_, element), chunks in zip(self._columns, self._chunks)
        ]
        fields = [pa.field(name, element.arrow_type()) for name, element in self._columns]
        rows = pa.StructArray.from_arrays(arrays, fields=fields)
        return pa.ListArray.from_arrays(pa.array(self._ends, pa.int32()), rows)


def _never(_: int) -> bool:
    return False
