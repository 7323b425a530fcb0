"""The states of groups as bytes, for other workers and for disk.

A class that defines `state()` and `from_state(data)` makes its own bytes. For others the attributes
of the instance are pickled, and not the instance: the name of the class leads to its decorated
form, or nowhere in a function that was sent by a program.

Invariant: a state that cannot be turned into bytes and back is a failure, never an empty state.
"""

from __future__ import annotations

import pickle
from typing import Any

from .failure import Failed

_HINT = "keep plain data in its attributes, or define state() and from_state(data)"


class NotBytes(Exception):
    """A state has no bytes; the text says why."""


class Pickled:
    """The attributes of an instance, pickled."""

    def __init__(self, made: Any) -> None:
        self._made = made
        # Those that the class defines itself; since Python 3.11 `object` has one of them.
        self._read = _own(made, "__getstate__")
        self._write = _own(made, "__setstate__")

    def dumps(self, state: Any) -> bytes:
        values = vars(state) if self._read is None else self._read(state)
        try:
            return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
        except Exception:
            return self._by_value(values)

    def _by_value(self, values: Any) -> bytes:
        """With the classes and functions that cannot be imported by their names."""
        from .._vendor import cloudpickle

        try:
            data: bytes = cloudpickle.dumps(values)
        except Exception as error:
            raise NotBytes(f"{type(error).__name__}: {error}") from None
        return data

    def loads(self, data: bytes) -> Any:
        state = self._made.__new__(self._made)
        values = pickle.loads(data)
        if self._write is None:
            vars(state).update(values)
        else:
            self._write(state, values)
        return state


class Own:
    """The bytes that the class makes itself."""

    def __init__(self, made: Any) -> None:
        self.loads = made.from_state

    def dumps(self, state: Any) -> bytes:
        data = state.state()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise NotBytes(f"state() returned {type(data).__name__}, and bytes are expected")
        return bytes(data)


def of(made: Any) -> Pickled | Own:
    """How the states of a class are turned into bytes."""
    return Own(made) if hasattr(made, "from_state") else Pickled(made)


def failed(name: str, error: NotBytes) -> Failed:
    """The failure for a state without bytes."""
    reason = f"its state cannot be sent to another worker: {error}"
    return Failed("type", reason, function=name, hint=_HINT)


def _own(made: Any, name: str) -> Any:
    found = getattr(made, name, None)
    return None if found is getattr(object, name, None) else found
