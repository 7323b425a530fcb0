"""Groups of rows as arguments: the values of a group are one list, its rows one list of structs.

So a function of groups is an ordinary function, which each engine can call, and Snowmelt's own SQL
with `array_agg`. Invariant: a group is one call, whole; a null is kept.
"""

from __future__ import annotations

from typing import Any

from ._arguments import as_array
from .errors import make

_ROWS = "write list[T] with a dataclass, a NamedTuple or a TypedDict T"


def check_lists(name: str, arguments: Any) -> None:
    """Raises `Error` if a parameter cannot have the values of a group."""
    if len(arguments) == 0:
        raise make("SM-0205", f"`{name}` has no parameter, which gets the values of a group")
    for field in arguments:
        if not _is_list(field.type):
            raise make(
                "SM-0205",
                f"`{name}` cannot be an aggregate: its parameter `{field.name}` is {field.type}",
                hint="annotate the parameters as lists: a call has the values of a group",
            )


def check_rows(name: str, arguments: Any, returns: Any, sides: int) -> list[Any]:
    """The fields of the rows that a function gives. Raises `Error` if it is not one of rows."""
    if len(arguments) != sides:
        wanted, found = f"{sides} parameter{'s' if sides > 1 else ''}", len(arguments)
        raise make("SM-0205", f"`{name}` needs {wanted}, the rows of a group; it has {found}")
    for field in arguments:
        if not _is_rows(field.type):
            text = f"its parameter `{field.name}` is {field.type}, and not a list of rows"
            raise make("SM-0205", f"`{name}` cannot take groups: {text}", hint=_ROWS)
    if not _is_rows(returns):
        text = f"it returns {returns}, and not a list of rows"
        raise make("SM-0205", f"`{name}` cannot take groups: {text}", hint=_ROWS)
    return list(returns.value_type)


def call(called: Any, tables: list[Any], returned: Any) -> Any:
    """The `pyarrow.Table` that a function gives for a group, one table for each parameter.
    `returned` is its schema. Raises `Error`."""
    import pyarrow as pa

    named = zip(called.arguments, tables)
    result = called(*(as_list(_rows(called.name, field, table)) for field, table in named))
    # A function that may return None gives no row then.
    rows = result.flatten()
    if rows.null_count:
        raise make("SM-0202", f"`{called.name}` returned a row that is None")
    return pa.Table.from_arrays(rows.flatten(), names=returned.names).cast(returned)


def as_list(values: Any) -> Any:
    """The list array whose one element has these values."""
    import pyarrow as pa

    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)


def _rows(name: str, field: Any, table: Any) -> Any:
    """The columns of a table that the rows of a parameter have, as structs."""
    import pyarrow as pa

    columns, kinds = [], list(field.type.value_type)
    for kind in kinds:
        places = table.schema.get_all_field_indices(kind.name)
        if len(places) != 1:
            has = ", ".join(table.column_names)
            raise make(
                "SM-0103",
                f"`{name}` needs one column `{kind.name}`; the rows of `{field.name}` have: {has}",
            )
        columns.append(as_array(table.column(places[0])))
    return pa.StructArray.from_arrays(columns, names=[kind.name for kind in kinds])


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_rows(kind: Any) -> bool:
    from pyarrow import types

    return _is_list(kind) and bool(types.is_struct(kind.value_type)) and len(kind.value_type) > 0
