"""`@sm.aggregate`: a Python class that SQL can call as an aggregate function.

Invariant: the class stays usable in Python (calling the aggregate makes an instance of it), and its
signature and its methods are checked (or refused) when it is decorated.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from types import FrameType, FunctionType, MethodType
from typing import Any

from . import _udf
from ._files import Files
from ._given import Given
from ._signature import Reader, Signature, function_annotation
from .errors import SignatureError

# The methods of every aggregate, with the number of their arguments besides `self`.
_METHODS = {"merge": 1, "finish": 0}

_EXAMPLE = "a class with update(self, …), merge(self, other) and finish(self)"


class Aggregate:
    """A class with its SQL signature; calling it makes an instance of the class."""

    def __init__(self, function: type, signature: Signature, given: Given | None = None) -> None:
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        # The class, under the name that functions have, for whoever pickles either.
        self.function = function
        self.signature = signature
        self.given = given or Given()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def register(self, *, files: Files = (), secrets: Mapping[str, str] | None = None) -> int:
        """Registers the function under its name, so that SQL calls it without its code. `files` and
        `secrets` are added to those of the decorator. Returns the version. Raises `Error`."""
        return _udf.register(self, files, secrets)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}: {kind}" for name, kind in self.signature.arguments)
        form = "" if self.signature.batch == "scalar" else f", batch={self.signature.batch!r}"
        return f"<aggregate {self.signature.name}({arguments}) -> {self.signature.returns}{form}>"

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "signature": self.signature}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def aggregate(
    made: type | None = None,
    /,
    *,
    batch: str | None = None,
    args: Sequence[Any] | None = None,
    returns: Any = None,
    packages: Sequence[str] = (),
    python: str | None = None,
    memory: str | int | None = None,
    timeout: str | float | None = None,
    name: str | None = None,
    files: Files = (),
    secrets: Mapping[str, str] | None = None,
) -> Any:
    """Makes a class an aggregate function of SQL. An instance of it is the state of a group:
    `update` adds rows, `merge` adds the state of another worker, `finish` returns the result. See
    docs/reference/python.md.

    Raises `SignatureError` for a class that lacks a method, and for unsupported annotations.
    """
    options = _udf.options(packages, memory, timeout, python)
    more = Given(files, secrets)
    names_around = sys._getframe(1).f_locals

    def decorate(given: type) -> Aggregate:
        made_of = _Class(given, name, sys._getframe(1) if made is None else sys._getframe(2))
        signature = made_of.signature(batch, args, returns, names_around, options)
        return Aggregate(given, signature, more)

    return decorate if made is None else decorate(made)


class _Class:
    """Reads one class; every error contains the function and its location."""

    def __init__(self, made: Any, name: str | None, around: FrameType) -> None:
        self._name: str = name or str(getattr(made, "__name__", made))
        self._location = {
            "file": around.f_code.co_filename,
            "line": around.f_lineno,
            "within": f"class {self._name}",
        }
        if not isinstance(made, type):
            raise self._refused(f"@sm.aggregate is for a class, not a {type(made).__name__}")
        self._made = made

    def signature(
        self,
        batch: str | None,
        args: Sequence[Any] | None,
        returns: Any,
        names_around: dict[str, Any],
        options: dict[str, Any],
    ) -> Signature:
        update = Reader(self._bound("update"), self._name, names_around)
        if not inspect.signature(update.function).parameters:
            raise update.refused("update() needs an argument besides self: a column of the rows")
        for method, count in _METHODS.items():
            self._check_arguments(method, inspect.signature(self._bound(method)), count)
        self._check_made()
        self._check_state()
        parameters = update.parameters(args)
        form = update.batch(batch, update.forms(parameters), len(parameters))
        update.check(form, None)
        finish = Reader(self._bound("finish"), self._name, names_around)
        result = finish.annotation(
            "return", function_annotation(finish.function, "return", returns)
        )
        return Signature(
            self._name,
            form,
            tuple((key, update.element(f"parameter `{key}`", kind)) for key, kind in parameters),
            finish.element("the return value of finish()", result),
            kind="aggregate",
            **options,
        )

    def _bound(self, method: str) -> Any:
        """The method without its `self`, so that its parameters are those of SQL."""
        try:
            found = inspect.getattr_static(self._made, method)
        except AttributeError:
            raise self._refused(f"it has no method {method}()") from None
        if not isinstance(found, FunctionType):
            raise self._refused(f"`{method}` is not a method with self")
        return MethodType(found, self._made)

    def _check_arguments(self, what: str, signature: inspect.Signature, count: int) -> None:
        try:
            signature.bind(*range(count))
        except TypeError:
            takes = ("nothing", "one argument: the other state")[count]
            written = ", ".join(str(parameter) for parameter in signature.parameters.values())
            raise self._refused(f"{what}({written}) must take {takes}, besides self") from None

    def _check_made(self) -> None:
        try:
            signature = inspect.signature(self._made)
        except (TypeError, ValueError):
            return  # Of a class that is not written in Python.
        self._check_arguments("__init__", signature, 0)

    def _check_state(self) -> None:
        has = [hasattr(self._made, name) for name in ("state", "from_state")]
        if has == [True, True]:
            state = inspect.signature(self._bound("state"))
            self._check_arguments("state", state, 0)
            kind = type(inspect.getattr_static(self._made, "from_state"))
            if kind not in (classmethod, staticmethod):
                raise self._refused(
                    "from_state is not a class method: write @classmethod before it"
                )
        elif any(has):
            raise self._refused("state() and from_state(data) belong together, and one is missing")
        elif self._made.__dictoffset__ == 0 or _has_slots(self._made):
            reason = "its __slots__ are not pickled: define state() and from_state(data)"
            raise self._refused(reason)

    def _refused(self, reason: str) -> SignatureError:
        report = {
            "code": "SM-0205",
            "message": f"`{self._name}` has no usable signature: {reason}",
            "function": self._name,
            "reason": reason,
            "location": self._location,
            "hint": f"write {_EXAMPLE}",
        }
        return SignatureError(report)


def _has_slots(made: type) -> bool:
    return any(vars(base).get("__slots__") for base in made.__mro__)
