"""`@sm.setup`: state that is loaded once for each instance, or once for all instances of a host,
such as a model.

Invariant: in one process a set-up function runs to its end at most once, however many threads and
connections use its state.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from ._collect import Collector

T = TypeVar("T")

# The set-ups that are made or unpickled in a block, in their order.
made: Collector[Setup[Any]] = Collector()

# The shared set-ups that are pickled in a block.
shared_pickled: Collector[Setup[Any]] = Collector()


class Setup(Generic[T]):
    """A set-up function. Calling it gives its result: the instances of the functions in its code
    have run it before their first call, and any other process runs it when it is first called."""

    def __init__(self, function: Callable[[], T], shared: bool = False) -> None:
        functools.update_wrapper(self, function)
        self._begin(function, shared)

    def _begin(self, function: Callable[[], T], shared: bool) -> None:
        self.function = function
        self.shared = shared
        # Reentrant: a set-up function may use the state of others, and by mistake its own.
        self._lock = threading.RLock()
        self._runs = False
        self._state: list[T] = []
        made.add(self)

    @property
    def is_done(self) -> bool:
        """Whether it has run in this process."""
        return bool(self._state)

    def __call__(self) -> T:
        if self._state:
            return self._state[0]
        with self._lock:
            if self._runs:
                raise RecursionError(f"the set-up {self.__name__}() uses its own result")
            if not self._state:
                self._runs = True
                try:
                    self._state.append(self.function())
                finally:
                    self._runs = False
            return self._state[0]

    def __repr__(self) -> str:
        return f"<set-up {self.__name__}()>"

    def __getstate__(self) -> dict[str, Any]:
        # Each process loads its own.
        if self.shared:
            shared_pickled.add(self)
        return {"function": self.function, "name": self.__name__, "shared": self.shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__name__ = state["name"]
        self._begin(state["function"], state.get("shared", False))


@overload
def setup(function: Callable[[], T], /) -> Setup[T]: ...


@overload
def setup(*, shared: bool = False) -> Callable[[Callable[[], T]], Setup[T]]: ...


def setup(function: Callable[[], T] | None = None, /, *, shared: bool = False) -> Any:
    """Makes a function without parameters a set-up: see docs/reference/udf.md. With `shared=True`
    it runs once on each host, and its instances share the memory of what it loads. Raises
    `TypeError` for a function that has parameters."""
    if function is None:
        return lambda function: _made(function, shared)
    return _made(function, shared)


def _made(function: Callable[[], T], shared: bool) -> Setup[T]:
    # Takes milliseconds to import, which an instance that only unpickles set-ups does not need.
    import inspect

    if not callable(function):
        raise TypeError("@sm.setup stands before a function; its only option is shared=True")
    with contextlib.suppress(ValueError):
        needed = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        if needed:
            name = getattr(function, "__name__", "it")
            raise TypeError(f"{name}() has parameters ({', '.join(needed)}): a set-up has none")
    return Setup(function, shared)
