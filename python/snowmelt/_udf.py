"""`@sm.udf`: a Python function that SQL can call.

Invariant: a decorated function can still be called as a plain function, and its signature is
determined (or refused) when it is decorated.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from . import _amounts, _signature
from ._files import Files
from ._given import Given
from ._signature import Signature
from ._versions import with_version

P = ParamSpec("P")
R = TypeVar("R")

ON_ERROR = ("raise", "null")

# For type checkers; `_signature` refuses others when it runs.
Batch = Literal["scalar", "arrow", "pandas", "numpy"]
OnError = Literal["raise", "null"]


class Udf(Generic[P, R]):
    """A function with its SQL signature; calling it calls the function."""

    def __init__(
        self, function: Callable[P, R], signature: Signature, given: Given | None = None
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.signature = signature
        self.given = given or Given()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def register(self, *, files: Files = (), secrets: Mapping[str, str] | None = None) -> int:
        """Registers the function under its name, so that SQL and other engines call it without its
        code. `files` and `secrets` are added to those of the decorator. Returns the version. Raises
        `Error`."""
        return register(self, files, secrets)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}: {kind}" for name, kind in self.signature.arguments)
        form = "" if self.signature.batch == "scalar" else f", batch={self.signature.batch!r}"
        return f"<udf {self.signature.name}({arguments}) -> {self.signature.returns}{form}>"

    def __getstate__(self) -> dict[str, Any]:
        # Without the annotations and docstrings that `update_wrapper` copied: they may refer to
        # types that cannot be imported where the function runs.
        return {"function": self.function, "signature": self.signature}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__name__ = self.signature.name
        self.given = Given()


AnyUdf = Udf[..., Any]


@overload
def udf(function: Callable[P, R], /) -> Udf[P, R]: ...


@overload
def udf(
    *,
    batch: Batch | None = None,
    args: Sequence[Any] | None = None,
    returns: Any = None,
    packages: Sequence[str] = (),
    python: str | None = None,
    on_error: OnError = "raise",
    deterministic: bool = False,
    memory: str | int | None = None,
    timeout: str | float | None = None,
    name: str | None = None,
    files: Files = (),
    secrets: Mapping[str, str] | None = None,
) -> Callable[[Callable[P, R]], Udf[P, R]]: ...


def udf(
    function: Callable[..., Any] | None = None,
    /,
    *,
    batch: Batch | None = None,
    args: Sequence[Any] | None = None,
    returns: Any = None,
    packages: Sequence[str] = (),
    python: str | None = None,
    on_error: OnError = "raise",
    deterministic: bool = False,
    memory: str | int | None = None,
    timeout: str | float | None = None,
    name: str | None = None,
    files: Files = (),
    secrets: Mapping[str, str] | None = None,
) -> Any:
    """Makes a function callable in SQL; docs/reference/python.md has the types and batch forms.

    Raises `SignatureError` for unsupported annotations.
    """
    if on_error not in ON_ERROR:
        raise TypeError(f"on_error={on_error!r} is neither 'raise' nor 'null'")
    if not isinstance(deterministic, bool):
        raise TypeError(f"deterministic={deterministic!r} is neither True nor False")
    set_options = {
        **options(packages, memory, timeout, python),
        "on_error": on_error,
        "deterministic": deterministic,
    }
    given = Given(files, secrets)
    names_around = sys._getframe(1).f_locals

    def decorate(plain: Callable[..., Any]) -> Udf[..., Any]:
        signature = _signature.read(
            plain,
            name=name,
            batch=batch,
            args=args,
            returns=returns,
            local_names=names_around,
            **set_options,
        )
        return Udf(plain, signature, given)

    return decorate if function is None else decorate(function)


def options(
    packages: Sequence[str],
    memory: str | int | None,
    timeout: str | float | None,
    python: str | None,
) -> dict[str, Any]:
    """The options of a signature that functions of rows and of groups have."""
    if isinstance(packages, str):
        raise TypeError(f'packages is a list: write packages=["{packages}"]')
    return {
        "packages": tuple(with_version(packages, python)),
        "memory": _text(memory, _amounts.memory_bytes),
        "timeout": _text(timeout, _amounts.milliseconds),
    }


def _text(amount: Any, parse: Callable[[Any], int]) -> str | None:
    """An amount as text for the request; an invalid one is refused here."""
    if amount is None:
        return None
    parse(amount)
    return str(amount)


def register(function: Any, files: Files, secrets: Mapping[str, str] | None) -> int:
    """Registers a function of SQL. Returns the version. Raises `Error`."""
    from ._client import client
    from ._query import udf_source

    given = function.given.with_more(files, secrets)
    source = udf_source(function, None, given)
    registered = client().call("POST", "/v1/udfs", {"source": source})
    return int(registered[0]["version"])
