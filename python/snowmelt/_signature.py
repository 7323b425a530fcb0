"""The signature of a user's function in SQL, read from its annotations.

Invariant: the signature is determined when the function is decorated; the sandbox receives it and
never evaluates the annotations of a pickled function again.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from ._elements import Element, UnsupportedAnnotation, element
from .errors import SignatureError

_HINT = "annotate every parameter and the return value with the type of one value"

_SQL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

BATCHES = ("scalar", "arrow", "pandas", "numpy")


class BatchOf:
    """A batch annotation such as `sm.Series[float]`: batches of values of one type."""

    def __init__(self, batch: str, values: Any) -> None:
        self.batch = batch
        self.values = values

    def __call__(self, *_: Any) -> Any:
        # `typing` of Python 3.10 accepts only callables as annotations.
        raise TypeError("this is an annotation, not a constructor")


@dataclasses.dataclass(frozen=True)
class Signature:
    """Name, batch form, types and options of a SQL function."""

    name: str
    batch: str
    arguments: tuple[tuple[str, Element], ...]
    returns: Element
    on_error: str = "raise"
    # Equal arguments give the same result throughout a query.
    deterministic: bool = False
    packages: tuple[str, ...] = ()
    memory: str | None = None
    timeout: str | None = None
    # `scalar`: called for each row; `aggregate`: for each group; `table`: for each row, and gives
    # a list of rows.
    kind: str = "scalar"

    def arrow_schema(self) -> Any:
        """`pyarrow.Schema`: a field for each argument, then `return`."""
        import pyarrow as pa

        fields = [pa.field(name, e.arrow_type(), e.nullable) for name, e in self.arguments]
        # Rows that are skipped because of a null give null, so the result is always nullable.
        fields.append(pa.field("return", self.returns.arrow_type(), True))
        return pa.schema(fields)

    def to_wire(self) -> dict[str, Any]:
        """The JSON object `Signature` of `crates/wire`."""
        schema = base64.b64encode(self.arrow_schema().serialize()).decode()
        return {
            "name": self.name,
            "kind": self.kind,
            "batch": self.batch,
            "schema": schema,
            "on_error": self.on_error,
            "deterministic": self.deterministic,
            "packages": list(self.packages),
            "memory": self.memory,
            "timeout": self.timeout,
        }


def of_wire(wire: dict[str, Any]) -> Signature:
    """The signature in a JSON object `Signature` of `crates/wire`: values have the plain Python
    type of their Arrow type. Raises `UnsupportedAnnotation` for a type that no function has."""
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(wire["schema"])))
    elements = [
        (field.name, dataclasses.replace(element(field.type), nullable=field.nullable))
        for field in schema
    ]
    *arguments, (_, returned) = elements
    return Signature(
        wire["name"],
        wire["batch"],
        tuple(arguments),
        returned,
        on_error=wire["on_error"],
        deterministic=bool(wire.get("deterministic", False)),
        packages=tuple(wire["packages"]),
        memory=wire["memory"],
        timeout=wire["timeout"],
    )


def read(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    batch: str | None = None,
    args: Sequence[Any] | None = None,
    returns: Any = None,
    local_names: dict[str, Any] | None = None,
    **options: Any,
) -> Signature:
    """The signature of a function. Raises `SignatureError`, which names the parameter."""
    reader = Reader(function, name or function.__name__, local_names or {})
    parameters = reader.parameters(args)
    result = reader.annotation("return", function_annotation(function, "return", returns))
    found = reader.forms([*parameters, ("return", result)])
    form = reader.batch(batch, found, len(parameters))
    reader.check(form, options.get("on_error"))
    arguments = tuple((key, reader.element(f"parameter `{key}`", a)) for key, a in parameters)
    returned = reader.element("the return value", result)
    return Signature(reader.name, form, arguments, returned, **options)


def function_annotation(function: Any, name: str, explicit: Any) -> Any:
    """The explicit type, or the annotation of the function, or `inspect.Parameter.empty`."""
    if explicit is not None:
        return explicit
    return getattr(function, "__annotations__", {}).get(name, inspect.Parameter.empty)


class Reader:
    """Reads one function's annotations; every error contains the function and its location."""

    def __init__(self, function: Any, name: str, local_names: dict[str, Any]) -> None:
        self.function, self.name, self._local_names = function, name, local_names

    def parameters(self, args: Sequence[Any] | None) -> list[tuple[str, Any]]:
        try:
            named = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError) as error:
            raise self.refused(f"its parameters cannot be read: {error}") from None
        for parameter in named:
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise self.refused(
                    f"parameter `{parameter}` is not positional: SQL gives arguments by position"
                )
        if args is not None and len(args) != len(named):
            raise self.refused(f"args= has {len(args)} types for {len(named)} parameters")
        given = args if args is not None else [parameter.annotation for parameter in named]
        return [(p.name, self.annotation(p.name, a)) for p, a in zip(named, given)]

    def annotation(self, name: str, annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        # Text is an annotation under `from __future__ import annotations`.
        scope = getattr(inspect.unwrap(self.function), "__globals__", {})
        try:
            return eval(annotation, scope, self._local_names)
        except Exception as error:
            what = "the return annotation" if name == "return" else f"the annotation of `{name}`"
            raise self.refused(f"{what}, {annotation!r}, cannot be read: {error}") from None

    def forms(self, annotations: Sequence[tuple[str, Any]]) -> set[str]:
        """The batch forms of annotations."""
        return {a.batch for _, a in annotations if isinstance(a, BatchOf)}

    def batch(self, given: str | None, found: set[str], count: int) -> str:
        if given is not None and given not in BATCHES:
            raise self.refused(f"batch={given!r} is not one of {', '.join(BATCHES)}")
        if len(found | ({given} if given else set())) > 1:
            raise self.refused(
                f"it mixes batch forms: {', '.join(sorted(found | {given or 'scalar'}))}"
            )
        form = given or next(iter(found), "scalar")
        if form != "scalar" and count == 0:
            raise self.refused(
                "a batch function needs a parameter, which determines the number of rows"
            )
        return form

    def check(self, form: str, on_error: str | None) -> None:
        """Refuses signatures that the platform would refuse later."""
        if not _SQL_NAME.fullmatch(self.name):
            raise self.refused(f"{self.name!r} is not a SQL name: set one with name=")
        if on_error == "null" and form != "scalar":
            raise self.refused('on_error="null" is for functions that are called row by row')

    def element(self, where: str, annotation: Any) -> Element:
        if isinstance(annotation, BatchOf):
            annotation = annotation.values
        if annotation is inspect.Parameter.empty:
            example = self._example(where)
            raise self.refused(f"{where} has no annotation: write for example {example}", _HINT)
        try:
            return element(annotation)
        except UnsupportedAnnotation as error:
            raise self.refused(f"{where}: {error}", _HINT) from None

    def _example(self, where: str) -> str:
        return f"{where.split('`')[1]}: float" if "`" in where else "-> float"

    def refused(self, reason: str, hint: str | None = None) -> SignatureError:
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        location = code and {
            "file": code.co_filename,
            "line": code.co_firstlineno,
            "within": f"{self.name}()",
        }
        report: dict[str, Any] = {
            "code": "SM-0205",
            "message": f"`{self.name}` has no usable signature: {reason}",
            "function": self.name,
            "reason": reason,
        }
        if location:
            report["location"] = location
        if hint:
            report["hint"] = hint
        return SignatureError(report)
