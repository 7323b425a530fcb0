"""Functions in ibis, for its back ends that run in this process (DuckDB, DataFusion, Polars)."""

from __future__ import annotations

from typing import Any

from .._udf import AnyUdf
from . import Remote, check_parameters, remote


def function(called: AnyUdf | Remote | str, name: str | None = None) -> Any:
    """A function of ibis expressions: `function(score)(table.amount)`."""
    import ibis
    from ibis.formats.pyarrow import PyArrowType

    there = remote(called)
    check_parameters(there, "ibis")
    types = [PyArrowType.to_ibis(field.type) for field in there.arguments]
    returns = PyArrowType.to_ibis(there.returns)
    names = ", ".join(field.name for field in there.arguments)
    # ibis reads the names of the parameters.
    scope: dict[str, Any] = {"there": there}
    exec(f"def call({names}):\n    return there({names})", scope)
    return ibis.udf.scalar.pyarrow(
        scope["call"],
        name=name or there.name,
        signature=(tuple(types), returns),
        # For DuckDB, as in `duckdb.register`; other back ends do not read them.
        null_handling="special",
        side_effects=not there.deterministic,
    )
