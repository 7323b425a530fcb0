"""Functions in Polars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._udf import AnyUdf
from ..errors import make
from . import Remote, remote

if TYPE_CHECKING:
    import polars as pl


def expression(function: AnyUdf | Remote | str, *columns: Any) -> pl.Expr:
    """An expression that calls a function with some columns: names, expressions or values.

    ```python
    frame.select(expression(score, "amount", pl.col("rate") * 2))
    ```

    Polars gives whole columns; they are sent in pieces, to several instances at a time. It computes
    an expression once, also where the same one is used twice.
    """
    import polars as pl
    import pyarrow as pa

    called = remote(function)
    if not columns:
        raise make("SM-0205", f"`{called.name}` is called without a column, which has the rows")
    if not called.deterministic and all(map(_is_constant, columns)):
        raise make(
            "SM-0205",
            f"`{called.name}` is called with constants alone, for which Polars has no rows",
            hint="call it with a column, or declare it with @sm.udf(deterministic=True)",
        )
    given = [column if isinstance(column, (str, pl.Expr)) else pl.lit(column) for column in columns]
    empty: Any = pl.from_arrow(pa.array([], called.returns))

    def call(series: Sequence[pl.Series]) -> pl.Series:
        rows = max((len(one) for one in series), default=0)
        if any(len(one) == 0 for one in series):
            rows = 0
        # A constant is a series of one value.
        full = [one.new_from_index(0, rows) if len(one) == 1 != rows else one for one in series]
        result: Any = pl.from_arrow(called(*(one.to_arrow() for one in full)))
        return result  # type: ignore[no-any-return]

    return pl.map_batches(given, call, return_dtype=empty.dtype, is_elementwise=True)


def _is_constant(column: Any) -> bool:
    import polars as pl

    if not isinstance(column, pl.Expr):
        return not isinstance(column, str)
    # Earlier versions of Polars do not say it of an expression.
    return bool(getattr(column.meta, "is_literal", lambda: False)())
