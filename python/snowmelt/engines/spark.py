"""Functions in Spark 4.1 and later (`pyspark`): of rows, of the values and of the rows of groups.

Each task of Spark leases an instance of its own from the platform of its machine, over a local
socket: executors on other machines need a platform with the same socket there. Spark's Python
workers only pass Arrow columns on.
"""

from __future__ import annotations

from typing import Any

from .. import _groups
from .._udf import AnyUdf
from ..errors import make
from . import Remote, check_parameters, remote


def register(session: Any, function: AnyUdf | Remote | str, name: str | None = None) -> Any:
    """Makes a function callable in the SQL of a session. Returns Spark's function, for its data
    frames. Raises `Error`."""
    from pyspark.sql.functions import arrow_udf

    called = _remote(function)
    check_parameters(called, "Spark")

    def call(*columns):  # type: ignore[no-untyped-def]
        return called(*columns)

    made = arrow_udf(call, returnType=_type(called.returns))
    if not called.deterministic:
        # Otherwise Spark calls it again where its result is used.
        made = made.asNondeterministic()
    session.udf.register(name or called.name, made)
    return made


def register_aggregate(
    session: Any, function: AnyUdf | Remote | str, name: str | None = None
) -> Any:
    """Makes a function of lists an aggregate function of a session, for its SQL and data frames.

    A call has the values of one group: a list for each parameter, in no certain order, with nulls.
    Returns Spark's function. Raises `Error` if a parameter is not a list.
    """
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    called = _remote(function)
    _groups.check_lists(called.name, called.arguments)

    def call(*columns):  # type: ignore[no-untyped-def]
        value = called(*map(_groups.as_list, columns))[0]
        return value if value.is_valid else None

    # Spark computes an aggregate once for each group, whatever is done with its result; HAVING and
    # ORDER BY may repeat it, and then mean the same value.
    made = arrow_udf(call, returnType=_type(called.returns), functionType=ArrowUDFType.GROUPED_AGG)
    session.udf.register(name or called.name, made)
    return made


def apply(grouped: Any, function: AnyUdf | Remote | str) -> Any:
    """The data frame of the rows that a function gives for each group of a `groupBy`.

    The function takes the rows of a group as a list of structs (a dataclass, a NamedTuple or a
    TypedDict), which has the columns it needs, and returns such a list. Raises `Error`.
    """
    called, schema = _of_rows(function, 1)
    returned = _arrow_schema(schema)

    def call(rows):  # type: ignore[no-untyped-def]
        return _groups.call(called, [rows], returned)

    return grouped.applyInArrow(call, schema)


def cogroup(left: Any, right: Any, function: AnyUdf | Remote | str) -> Any:
    """The data frame of the rows that a function gives for each key of two `groupBy`.

    The function takes the rows of both sides, as that of `apply` those of one. The list of a side
    that does not have the key is empty. Raises `Error`.
    """
    called, schema = _of_rows(function, 2)
    returned = _arrow_schema(schema)

    def call(left_rows, right_rows):  # type: ignore[no-untyped-def]
        return _groups.call(called, [left_rows, right_rows], returned)

    return left.cogroup(right).applyInArrow(call, schema)


def _remote(function: AnyUdf | Remote | str) -> Remote:
    # A task has one thread.
    return remote(function, instances=1)


def _of_rows(function: AnyUdf | Remote | str, sides: int) -> tuple[Remote, Any]:
    """The function, and Spark's schema of the rows that it gives."""
    from pyspark.sql.types import StructField, StructType

    called = _remote(function)
    fields = _groups.check_rows(called.name, called.arguments, called.returns, sides)
    return called, StructType([StructField(one.name, _type(one.type)) for one in fields])


def _type(kind: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type

    if _has_nanoseconds(kind):
        # Spark would leave digits out.
        raise make("SM-0205", f"times of Spark have microseconds, and the function returns {kind}")
    # A time without a zone stays one: otherwise it would be one of the session's zone.
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def _has_nanoseconds(kind: Any) -> bool:
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return getattr(kind, "unit", None) == "ns" or any(map(_has_nanoseconds, inner))


def _arrow_schema(schema: Any) -> Any:
    """The Arrow types that Spark wants for a schema: its own units, and UTC."""
    import inspect

    from pyspark.sql.pandas.types import to_arrow_schema

    # Releases before 4.3 have UTC without being told.
    is_told = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **({"timezone": "UTC"} if is_told else {}))
