"""`@sm.table`: a Python function that SQL calls in FROM, for the rows that it yields.

Invariant: a decorated function can still be called as a plain function, and its columns are
determined (or refused) when it is decorated. For the platform it is a function whose result is a
list of rows.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from . import _udf
from ._elements import Element
from ._files import Files
from ._given import Given
from ._signature import BatchOf, Reader, Signature, function_annotation
from ._udf import Udf

P = ParamSpec("P")
R = TypeVar("R")

_MAX_COLUMNS = 256

_ROWS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Sequence,
    list,
)

_HINT = (
    'write @sm.table(columns={"word": str, "place": int}), or -> Iterator[Row] with a dataclass, '
    "a NamedTuple or a TypedDict"
)


class TableFunction(Udf[P, R]):
    """A function with its parameters and columns in SQL; calling it calls the function."""

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}: {kind}" for name, kind in self.signature.arguments)
        columns = ", ".join(f"{name}: {kind}" for name, kind in columns_of(self.signature))
        return f"<table {self.signature.name}({arguments}) -> ({columns})>"


def columns_of(signature: Signature) -> tuple[tuple[str, Element], ...]:
    """The columns of a table function: the fields of the structs in its list."""
    return signature.returns.fields[0][1].fields


@overload
def table(function: Callable[P, R], /) -> TableFunction[P, R]: ...


@overload
def table(
    *,
    columns: Mapping[str, Any] | None = None,
    args: Sequence[Any] | None = None,
    packages: Sequence[str] = (),
    python: str | None = None,
    memory: str | int | None = None,
    timeout: str | float | None = None,
    name: str | None = None,
    files: Files = (),
    secrets: Mapping[str, str] | None = None,
) -> Callable[[Callable[P, R]], TableFunction[P, R]]: ...


def table(
    function: Callable[..., Any] | None = None,
    /,
    *,
    columns: Mapping[str, Any] | None = None,
    args: Sequence[Any] | None = None,
    packages: Sequence[str] = (),
    python: str | None = None,
    memory: str | int | None = None,
    timeout: str | float | None = None,
    name: str | None = None,
    files: Files = (),
    secrets: Mapping[str, str] | None = None,
) -> Any:
    """Makes a function a table function of SQL: it yields rows, and SQL calls it in FROM.

    `columns` has the columns by name; without it they are the fields of the class that the return
    annotation says is yielded: `-> Iterator[Row]`. See docs/reference/python.md.
    Raises `SignatureError`.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise TypeError('columns is a mapping: write columns={"word": str}')
    options = _udf.options(packages, memory, timeout, python)
    given = Given(files, secrets)
    names_around = sys._getframe(1).f_locals

    def decorate(plain: Callable[..., Any]) -> TableFunction[..., Any]:
        reader = Reader(plain, name or plain.__name__, names_around)
        return TableFunction(plain, _signature(reader, columns, args, options), given)

    return decorate if function is None else decorate(function)


def _signature(
    reader: Reader,
    columns: Mapping[str, Any] | None,
    args: Sequence[Any] | None,
    options: dict[str, Any],
) -> Signature:
    parameters = reader.parameters(args)
    if reader.forms(parameters):
        raise reader.refused("a table function is called row by row: it takes no batches")
    reader.check("scalar", None)
    arguments = tuple((key, reader.element(f"parameter `{key}`", a)) for key, a in parameters)
    row = Element("struct", fields=_columns(reader, columns))
    rows = Element("list", fields=(("item", row),))
    return Signature(reader.name, "scalar", arguments, rows, kind="table", **options)


def _columns(reader: Reader, given: Mapping[str, Any] | None) -> tuple[tuple[str, Element], ...]:
    found = _of_annotation(reader) if given is None else _of_mapping(reader, given)
    if not found:
        raise reader.refused("it declares no columns", _HINT)
    if len(found) > _MAX_COLUMNS:
        raise reader.refused(f"it has {len(found)} columns; the limit is {_MAX_COLUMNS}")
    folded = [name.lower() for name, _ in found]
    for name, _ in found:
        if not name:
            raise reader.refused("a column has no name", _HINT)
        if folded.count(name.lower()) > 1:
            raise reader.refused(f"two columns are named `{name}`: SQL ignores case")
    return found


def _of_mapping(reader: Reader, given: Mapping[str, Any]) -> tuple[tuple[str, Element], ...]:
    for name, kind in given.items():
        if not isinstance(name, str):
            raise reader.refused(f"{name!r} is not the name of a column", _HINT)
        if isinstance(kind, BatchOf):
            raise reader.refused(f"the column `{name}` has the type of a batch", _HINT)
    kinds = ((name, reader.annotation(name, kind)) for name, kind in given.items())
    return tuple((name, reader.element(f"column `{name}`", kind)) for name, kind in kinds)


def _of_annotation(reader: Reader) -> tuple[tuple[str, Element], ...]:
    """The fields of the class of a row: `-> Iterator[Row]`."""
    found = function_annotation(reader.function, "return", None)
    if found is inspect.Parameter.empty:
        raise reader.refused("it does not declare its columns", _HINT)
    annotation = reader.annotation("return", found)
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) not in _ROWS or not inner:
        reason = f"its return annotation, {annotation!r}, does not say which rows it yields"
        raise reader.refused(reason, _HINT)
    if typing.get_origin(inner[0]) is tuple:
        raise reader.refused("its rows are tuples, whose columns have no names", _HINT)
    row = reader.element("the yielded row", inner[0])
    if row.kind != "struct":
        raise reader.refused(f"its rows, {row}, have no named columns", _HINT)
    if row.nullable:
        raise reader.refused("its rows cannot be None")
    # Rows are only written: how their class is made does not matter.
    return dataclasses.replace(row, python=None).fields
