"""`sm.map`: one function over many items, in many concurrent sandboxes.

Invariant: results have the order of their items, and every item has exactly one outcome,
independent of the other items.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from . import _amounts, _outcomes, _prints, _progress
from ._client import client
from ._files import Files, declared
from ._function import Deployed, Function, deploy, limits, unique_name
from ._outcomes import Outcome
from ._prints import Prints
from ._udf import Udf
from .errors import Error, PackageError, hide_internal_frames

_CHUNKS_PER_WORKER = 4
_LARGEST_CHUNK = 1_000

T = TypeVar("T")
R = TypeVar("R")

# The code cannot be loaded, the server cannot be reached, the function was removed.
_OF_ALL_ITEMS = {"SM-0204", "SM-0220", "SM-0503"}


@hide_internal_frames
def map(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    chunk: int | None = None,
    workers: int | None = None,
    packages: Sequence[str] | None = None,
    memory: _amounts.Memory | None = None,
    cpu: _amounts.Processor | None = None,
    timeout: _amounts.Duration | None = None,
    environment: Mapping[str, str] | None = None,
    files: Files | None = None,
    on_error: str = "raise",
    results: str = "plain",
    progress: bool | None = None,
    prints: bool | None = None,
) -> list[R]:
    """`[function(item) for item in items]`, in sandboxes. See docs/reference/python.md.

    Raises `MapError` once all items ran, if some failed; with `on_error="return"` the result
    contains the exceptions instead. Results are plain data; with `results="pickle"` they are any
    objects, and code that controls the sandbox can run code in this process.
    """
    _outcomes.check(on_error, results)
    all_items = list(items)
    if not all_items:
        return []
    wanted = os.cpu_count() or 1 if workers is None else workers
    count = _amounts.count("workers", wanted)
    if chunk is not None:
        chunk = _amounts.count("chunk", chunk)
    given = limits(memory=memory, cpu=cpu, timeout=timeout, environment=environment)
    made = with_options(function, packages, {**given, "instances": count}, files)
    chunks = _chunks(all_items, chunk, count)
    work = _Work(chunks, results)
    shown = Prints(_prints.enabled(prints))
    _run(made, work, min(count, len(chunks)), _progress.enabled(progress), shown)
    values, errors = _outcomes.gather(work.outcomes, on_error)
    if errors:
        raise _outcomes.map_error(errors, values, made.function.__name__) from errors[0][1]
    return values


def with_options(
    function: Any,
    packages: Sequence[str] | None,
    options: dict[str, Any],
    files: Files | None,
) -> Function[Any, Any]:
    """The function with the given packages, limits and files, or its own where none are given."""
    more = None if files is None else declared(files)
    if isinstance(function, Function):
        own = packages if packages is not None else function.packages
        # A worker sends one chunk at a time, and the code may not be thread-safe.
        own_options = {**function.options, **options, "concurrency": 1}
        given = function.files if more is None else more
        where = (function.tenant, function.network)
        made = Function(function.function, own, own_options, *where, given, function.secrets)
        made.image = function.image
        return made
    if isinstance(function, Udf):
        own = packages if packages is not None else function.signature.packages
        given = function.given.files if more is None else more
        return Function(
            function.function, own, options, files=given, secrets=function.given.secrets
        )
    if not callable(function):
        raise TypeError(f"{function!r} is not a function")
    if not hasattr(function, "__name__"):
        wrapped = function
        return Function(lambda item: wrapped(item), packages or (), options, files=more)
    return Function(function, packages or (), options, files=more)


def _chunks(items: list[Any], chunk: int | None, workers: int) -> list[tuple[int, list[Any]]]:
    """Contiguous chunks of items, each with the index of its first item."""
    size = chunk or min(_LARGEST_CHUNK, -(-len(items) // (workers * _CHUNKS_PER_WORKER)))
    return [(start, items[start : start + size]) for start in range(0, len(items), size)]


def _run(made: Function[Any, Any], work: _Work, workers: int, shown: bool, prints: Prints) -> None:
    platform = client(made.tenant)
    name = unique_name(made.function)
    deployed = deploy(platform, made, name, "map", ephemeral=True, expected=workers, prints=prints)
    line = _progress.Line(shown)
    try:
        work.start(deployed, workers)
        while not work.wait(0.1):
            line.show(f"{work.done_items:,} of {work.items:,} items done")
        if work.fatal is not None:
            raise work.fatal
    except BaseException:
        work.stop()
        platform.cancel()
        raise
    finally:
        line.clear()
        # The function is temporary: if the platform has ended, it is already removed.
        with contextlib.suppress(Error):
            deployed.remove()


class _Work:
    """The queue of chunks, and the threads that send them, one chunk each at a time."""

    def __init__(self, chunks: list[tuple[int, list[Any]]], results: str) -> None:
        self._results = results
        self._waiting: queue.SimpleQueue[tuple[int, list[Any]]] = queue.SimpleQueue()
        for chunk in chunks:
            self._waiting.put(chunk)
        self.items = sum(len(items) for _, items in chunks)
        self.outcomes: list[Outcome] = [(False, None)] * self.items
        self.done_items = 0
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        # An error that does not depend on the item: it would occur for all of them.
        self.fatal: Error | None = None

    def start(self, deployed: Deployed, count: int) -> None:
        for _ in range(count):
            # Daemon threads: an interrupted program exits without waiting for them.
            thread = threading.Thread(target=self._send_all, args=(deployed,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Waits at most that time. Whether the work has ended."""
        with self._changed:
            return self._changed.wait_for(self._ended, seconds)

    def _ended(self) -> bool:
        return self.fatal is not None or self.done_items == self.items

    def stop(self) -> None:
        self._stopped = True

    def _send_all(self, deployed: Deployed) -> None:
        while not self._stopped:
            try:
                start, items = self._waiting.get_nowait()
            except queue.Empty:
                return
            outcomes = _send(deployed, items, self._results)
            with self._changed:
                self.outcomes[start : start + len(items)] = outcomes
                self.done_items += len(items)
                self.fatal = self.fatal or _fatal(outcomes[0])
                self._changed.notify_all()


def _fatal(outcome: Outcome) -> Error | None:
    error = None if outcome[0] else outcome[1]
    of_all = isinstance(error, Error) and error.code in _OF_ALL_ITEMS
    return error if of_all or isinstance(error, PackageError) else None


def _send(deployed: Deployed, items: list[Any], results: str) -> list[Outcome]:
    """The outcomes of a chunk. If its sandbox ended, all of its items have failed."""
    try:
        answer = deployed.remote(_outcomes.event(items, results))
        return _outcomes.read(answer, len(items), results)
    except Exception as error:
        return [(False, error)] * len(items)
