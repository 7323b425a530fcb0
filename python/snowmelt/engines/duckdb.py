"""Functions in DuckDB."""

from __future__ import annotations

import inspect
from typing import Any

from .._udf import AnyUdf
from ..errors import make
from . import Remote, remote


def register(connection: Any, function: AnyUdf | Remote | str, name: str | None = None) -> Remote:
    """Makes a function callable in the SQL and in the relations of a connection.

    A function that has this name already is replaced. DuckDB converts the arguments to the declared
    types, and gives 2,048 rows a call. Raises `Error`.
    """
    import duckdb

    called = remote(function)
    name = name or called.name
    if len(called.arguments) == 0:
        raise make(
            "SM-0205",
            f"`{name}` has no parameters, by which DuckDB gives a function its rows",
            hint="give it a parameter, for example the key of the row",
        )

    def call(*columns: Any) -> Any:
        return called(*columns)

    # DuckDB counts the parameters.
    positional = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(field.name, positional) for field in called.arguments]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    # DuckDB's own types for these Arrow types.
    types = connection.from_arrow(called.schema.empty_table()).types
    try:
        connection.remove_function(name)
    except duckdb.InvalidInputException:
        pass
    connection.create_function(
        name,
        call,
        parameters=types[:-1],
        return_type=types[-1],
        type="arrow",
        # Nulls are the function's own matter: its annotations say what they mean.
        null_handling="special",
    )
    return called
