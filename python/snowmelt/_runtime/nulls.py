"""The rows of a batch for which a function is called: those with a value in every argument that
does not accept None. The result is null for the other rows.

Invariant: the original row numbers are kept, so that a failure names the row of the batch as the
engine counts it.
"""

from __future__ import annotations

from typing import Any

from .._signature import Signature


class Rows:
    """The rows of one batch for which the function is called."""

    def __init__(self, batch: Any, signature: Signature) -> None:
        self._mask = _mask(batch, signature)
        self._batch = batch

    @property
    def columns(self) -> list[Any]:
        """The argument columns with the called rows only."""
        columns = self._batch.columns
        return list(columns) if self._mask is None else [c.filter(self._mask) for c in columns]

    @property
    def count(self) -> int:
        """The number of called rows."""
        return int(self._batch.num_rows if self._mask is None else self._mask.true_count)

    def number(self, position: int) -> int:
        """The row of the batch for a position among the called rows."""
        if self._mask is None:
            return position
        import pyarrow.compute as pc

        return int(pc.indices_nonzero(self._mask)[position].as_py())

    def spread(self, result: Any) -> Any:
        """The results at their rows, null between them."""
        if self._mask is None:
            return result
        import pyarrow as pa
        import pyarrow.compute as pc

        ends = pc.cumulative_sum(self._mask.cast(pa.int64()))
        positions = pc.if_else(self._mask, pc.subtract(ends, 1), pa.scalar(None, pa.int64()))
        return result.take(positions)


def _mask(batch: Any, signature: Signature) -> Any:
    """True for the called rows; None if all rows are called."""
    pairs = zip(batch.columns, signature.arguments)
    strict = [c for c, (_, element) in pairs if not element.nullable and c.null_count]
    if not strict:
        return None
    import pyarrow.compute as pc

    mask = pc.is_valid(strict[0])
    for column in strict[1:]:
        mask = pc.and_(mask, pc.is_valid(column))
    return mask
