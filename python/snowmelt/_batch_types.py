"""`sm.Array[T]`, `sm.Series[T]`, `sm.NDArray[T]`: annotations of batch functions.

Invariant: to a type checker they are the pyarrow, pandas and numpy types that the function gets; at
run time they only say which batch form it is and of what values.
"""

from __future__ import annotations

from typing import Any

from ._signature import BatchOf


class _Form:
    """One batch form; indexed by the type of a value it is an annotation."""

    def __init__(self, batch: str, shown: str) -> None:
        self._batch, self._shown = batch, shown

    def __getitem__(self, values: Any) -> BatchOf:
        return BatchOf(self._batch, values)

    def __repr__(self) -> str:
        return self._shown


Array = _Form("arrow", "snowmelt.Array")
Series = _Form("pandas", "snowmelt.Series")
NDArray = _Form("numpy", "snowmelt.NDArray")
