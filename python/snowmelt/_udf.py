"""`@sm.udf`: a Python function that SQL can call.

Invariant: a decorated function stays plainly callable, and its signature is settled (or refused)
when it is decorated.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import _signature
from ._signature import Signature

ON_ERROR = ("raise", "null")


class Udf:
    """A function with the signature by which queries call it; calling it calls the function."""

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.signature = signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}: {kind}" for name, kind in self.signature.arguments)
        form = "" if self.signature.batch == "scalar" else f", batch={self.signature.batch!r}"
        return f"<udf {self.signature.name}({arguments}) -> {self.signature.returns}{form}>"

    def __getstate__(self) -> dict[str, Any]:
        # Without the annotations and documents that `update_wrapper` copied: they may name types
        # that cannot be imported where the function runs.
        return {"function": self.function, "signature": self.signature}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__name__ = self.signature.name


def udf(
    function: Callable[..., Any] | None = None,
    *,
    batch: str | None = None,
    args: Sequence[Any] | None = None,
    returns: Any = None,
    packages: Sequence[str] = (),
    on_error: str = "raise",
    memory: str | None = None,
    timeout: str | None = None,
    name: str | None = None,
) -> Any:
    """Makes a function callable in SQL; see docs/python.md for types and batch forms."""
    if on_error not in ON_ERROR:
        raise TypeError(f"on_error={on_error!r} is neither 'raise' nor 'null'")
    if isinstance(packages, str):
        raise TypeError(f'packages is a list: write packages=["{packages}"]')
    names_around = sys._getframe(1).f_locals

    def decorate(plain: Callable[..., Any]) -> Udf:
        signature = _signature.read(
            plain,
            name=name,
            batch=batch,
            args=args,
            returns=returns,
            local_names=names_around,
            packages=tuple(packages),
            on_error=on_error,
            memory=memory,
            timeout=timeout,
        )
        return Udf(plain, signature)

    return decorate if function is None else decorate(function)
