"""`sm.Array[T]`, `sm.Series[T]`, `sm.NDArray[T]`: annotations of batch functions.

Invariant: at run time they only declare the batch form and the type of its values. For a type
checker they are values that accept every call, because pyarrow has no type annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._signature import BatchOf

if TYPE_CHECKING:
    T = TypeVar("T")
    S = TypeVar("S", bound="_Values")

    class _Values(Any):  # type: ignore[misc]
        """Values on which every operation returns values of the same type."""

        def __add__(self: S, other: Any, /) -> S: ...
        def __radd__(self: S, other: Any, /) -> S: ...
        def __sub__(self: S, other: Any, /) -> S: ...
        def __rsub__(self: S, other: Any, /) -> S: ...
        def __mul__(self: S, other: Any, /) -> S: ...
        def __rmul__(self: S, other: Any, /) -> S: ...
        def __truediv__(self: S, other: Any, /) -> S: ...
        def __rtruediv__(self: S, other: Any, /) -> S: ...
        def __floordiv__(self: S, other: Any, /) -> S: ...
        def __mod__(self: S, other: Any, /) -> S: ...
        def __pow__(self: S, other: Any, /) -> S: ...
        def __and__(self: S, other: Any, /) -> S: ...
        def __or__(self: S, other: Any, /) -> S: ...
        def __neg__(self: S) -> S: ...
        def __invert__(self: S) -> S: ...
        def __lt__(self: S, other: Any, /) -> S: ...
        def __le__(self: S, other: Any, /) -> S: ...
        def __gt__(self: S, other: Any, /) -> S: ...
        def __ge__(self: S, other: Any, /) -> S: ...

    class Array(_Values, Generic[T]):
        """A `pyarrow.Array` of values of one type."""

    class Series(_Values, Generic[T]):
        """A `pandas.Series` of values of one type."""

    class NDArray(_Values, Generic[T]):
        """A one-dimensional `numpy.ndarray` of values of one type."""

else:

    class _Form:
        """One batch form. Indexed by the type of its values it gives an annotation."""

        def __init__(self, batch: str, shown: str) -> None:
            self._batch, self._shown = batch, shown

        def __getitem__(self, values: Any) -> BatchOf:
            return BatchOf(self._batch, values)

        def __repr__(self) -> str:
            return self._shown

    Array = _Form("arrow", "snowmelt.Array")
    Series = _Form("pandas", "snowmelt.Series")
    NDArray = _Form("numpy", "snowmelt.NDArray")
