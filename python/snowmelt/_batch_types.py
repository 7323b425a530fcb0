"""`sm.Array[T]`, `sm.Series[T]`, `sm.NDArray[T]`: annotations of batch functions.

Invariant: at run time they only say which batch form it is and of what values; to a type checker
they are values on which everything may be called, because pyarrow has no types of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._signature import BatchOf

if TYPE_CHECKING:
    T = TypeVar("T")

    class Array(Any, Generic[T]):  # type: ignore[misc]
        """A `pyarrow.Array` of values of one type."""

    class Series(Any, Generic[T]):  # type: ignore[misc]
        """A `pandas.Series` of values of one type."""

    class NDArray(Any, Generic[T]):  # type: ignore[misc]
        """A `numpy.ndarray` of one dimension and of values of one type."""

else:

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
