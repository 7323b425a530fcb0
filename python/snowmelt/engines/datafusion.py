"""Functions in DataFusion's Python package."""

from __future__ import annotations

from typing import Any

from .._udf import AnyUdf
from ..errors import Error
from . import Remote, check_parameters, remote


class _Failed(Exception):
    """DataFusion shows how an exception is represented, and not its text."""

    def __repr__(self) -> str:
        return str(self)


def register(context: Any, function: AnyUdf | Remote | str, name: str | None = None) -> Any:
    """Makes a function callable in the SQL of a context. Returns DataFusion's function, for its
    data frames."""
    import datafusion

    called = remote(function)
    check_parameters(called, "DataFusion")

    def call(*columns: Any) -> Any:
        try:
            return called(*columns)
        except Error as error:
            raise _Failed(str(error)) from None

    # What is stable may be called once where it is written twice.
    volatility = "stable" if called.deterministic else "volatile"
    made = datafusion.udf(
        call, called.arguments.types, called.returns, volatility, name or called.name
    )
    context.register_udf(made)
    return made
