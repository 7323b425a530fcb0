"""Collecting what is pickled, unpickled or made while a block runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Collector(Generic[T]):
    """Collects for the innermost block that asks; nothing outside of any. Not for several threads:
    who asks holds a lock, or is alone in its process."""

    def __init__(self) -> None:
        self._found: list[T] | None = None

    def add(self, thing: T) -> bool:
        """Adds a thing; false if no block asks."""
        if self._found is None:
            return False
        self._found.append(thing)
        return True

    @contextlib.contextmanager
    def collected(self) -> Iterator[list[T]]:
        """What is added in the block, in order."""
        before, self._found = self._found, []
        try:
            yield self._found
        finally:
            self._found = before
