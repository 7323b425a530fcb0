"""Functions in DuckDB."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

from .._udf import AnyUdf
from ..errors import make
from . import Remote, check_parameters, remote


def register(connection: Any, function: AnyUdf | Remote | str, name: str | None = None) -> Remote:
    """Makes a function callable in the SQL and in the relations of a connection.

    A function that has this name already is replaced. DuckDB converts the arguments to the declared
    types, and gives 2,048 rows a call. Raises `Error`.
    """
    import duckdb

    called = remote(function)
    name = name or called.name
    check_parameters(called, "DuckDB")

    def call(*columns: Any) -> Any:
        return called(*columns)

    # DuckDB counts the parameters.
    positional = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(field.name, positional) for field in called.arguments]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    # DuckDB's own types for these Arrow types.
    types = connection.from_arrow(called.schema.empty_table()).types
    try:
        with contextlib.suppress(duckdb.InvalidInputException):
            connection.remove_function(name)
        connection.create_function(
            name,
            call,
            parameters=types[:-1],
            return_type=types[-1],
            type="arrow",
            # Nulls are the function's own matter: its annotations say what they mean.
            null_handling="special",
            # Otherwise DuckDB calls it again where its result is used, and once for constants.
            side_effects=not called.deterministic,
        )
    except duckdb.CatalogException as error:
        # Aggregates, macros and some functions of DuckDB cannot be replaced.
        raise make(
            "SM-0110",
            f"DuckDB does not take a function of the name `{name}`: {error}",
            hint=f'give it another one: register(connection, function, "my_{name}")',
        ) from None
    return called
