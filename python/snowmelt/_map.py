"""`sm.map`: one function over many items, many sandboxes at once.

Invariant: results have the order of their items, and every item has exactly one outcome, whatever
became of its neighbours.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from . import _amounts, _progress
from ._client import client
from ._function import Deployed, Function, deploy, limits, passing_name
from ._udf import Udf
from ._vendor import cloudpickle
from .errors import Error, MapError, PackageError, from_failure, make

_CHUNKS_PER_WORKER = 4
_LARGEST_CHUNK = 1_000

T = TypeVar("T")
R = TypeVar("R")

# The code cannot be loaded, the server is gone, the function is no longer there.
_OF_ALL_ITEMS = {"SM-0204", "SM-0220", "SM-0503"}

Outcome = tuple[bool, Any]


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
    on_error: str = "raise",
    progress: bool | None = None,
) -> list[R]:
    """`[function(item) for item in items]`, in sandboxes. See docs/python.md.

    Raises `MapError` once all items ran, if some failed; `on_error="return"` gives their exceptions
    in their places instead.
    """
    if on_error not in ("raise", "return"):
        raise TypeError(f"on_error={on_error!r} is neither 'raise' nor 'return'")
    all_items = list(items)
    if not all_items:
        return []
    count = max(1, workers if workers is not None else os.cpu_count() or 1)
    given = limits(memory=memory, cpu=cpu, timeout=timeout, environment=environment)
    made = _with_options(function, packages, {**given, "instances": count})
    chunks = _chunks(all_items, chunk, count)
    outcomes = _run(made, chunks, min(count, len(chunks)), _progress.wanted(progress))
    return _results(outcomes, made.function.__name__, on_error)


def _with_options(
    function: Any, packages: Sequence[str] | None, options: dict[str, Any]
) -> Function[Any, Any]:
    if isinstance(function, Function):
        own = packages if packages is not None else function.packages
        # A worker sends one chunk at a time, and items may do what is not safe for threads.
        own_options = {**function.options, **options, "concurrency": 1}
        return Function(function.function, own, own_options, function.tenant, function.network)
    if isinstance(function, Udf):
        own = packages if packages is not None else function.signature.packages
        return Function(function.function, own, options)
    if not callable(function):
        raise TypeError(f"{function!r} is no function")
    if not hasattr(function, "__name__"):
        wrapped = function
        return Function(lambda item: wrapped(item), packages or (), options)
    return Function(function, packages or (), options)


def _chunks(items: list[Any], chunk: int | None, workers: int) -> list[tuple[int, list[Any]]]:
    """Runs of items with the index of their first."""
    if chunk is not None and chunk < 1:
        raise TypeError(f"chunk={chunk} is less than 1")
    size = chunk or min(_LARGEST_CHUNK, -(-len(items) // (workers * _CHUNKS_PER_WORKER)))
    return [(start, items[start : start + size]) for start in range(0, len(items), size)]


def _run(
    made: Function[Any, Any], chunks: list[tuple[int, list[Any]]], workers: int, shown: bool
) -> list[Outcome]:
    platform = client()
    name = passing_name(made.function)
    deployed = deploy(platform, made, name, "map", ephemeral=True, expected=workers)
    work = _Work(deployed, chunks)
    line = _progress.Line(shown)
    try:
        work.start(workers)
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
        # A function of this process only: if the platform is gone, so is the function.
        with contextlib.suppress(Error):
            deployed.remove()
    return work.outcomes


class _Work:
    """Chunks that wait, and threads that send them; each thread has one chunk under way."""

    def __init__(self, deployed: Deployed, chunks: list[tuple[int, list[Any]]]) -> None:
        self._deployed = deployed
        self._waiting: queue.SimpleQueue[tuple[int, list[Any]]] = queue.SimpleQueue()
        for chunk in chunks:
            self._waiting.put(chunk)
        self.items = sum(len(items) for _, items in chunks)
        self.outcomes: list[Outcome] = [(False, None)] * self.items
        self.done_items = 0
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        # What no item is to blame for: it would be the same for all of them.
        self.fatal: Error | None = None

    def start(self, count: int) -> None:
        for _ in range(count):
            # Daemons: an interrupted program ends without waiting for them.
            thread = threading.Thread(target=self._send_all, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether all is done, after at most that time."""
        with self._changed:
            return self._changed.wait_for(self._ended, seconds)

    def _ended(self) -> bool:
        return self.fatal is not None or self.done_items == self.items

    def stop(self) -> None:
        self._stopped = True

    def _send_all(self) -> None:
        while not self._stopped:
            try:
                start, items = self._waiting.get_nowait()
            except queue.Empty:
                return
            outcomes = _send(self._deployed, items)
            with self._changed:
                self.outcomes[start : start + len(items)] = outcomes
                self.done_items += len(items)
                self.fatal = self.fatal or _fatal(outcomes[0])
                self._changed.notify_all()


def _fatal(outcome: Outcome) -> Error | None:
    error = None if outcome[0] else outcome[1]
    of_all = isinstance(error, Error) and error.code in _OF_ALL_ITEMS
    return error if of_all or isinstance(error, PackageError) else None


def _send(deployed: Deployed, items: list[Any]) -> list[Outcome]:
    """The outcomes of a chunk; a chunk whose sandbox ended fails as a whole."""
    try:
        event = base64.b64encode(cloudpickle.dumps(items)).decode()
        answer = deployed.remote(event)
        outcomes = pickle.loads(base64.b64decode(answer["results"]))
        if len(outcomes) != len(items):
            raise make("SM-0507", f"{len(outcomes)} results came for {len(items)} items")
        return [_outcome(*outcome) for outcome in outcomes]
    except Exception as error:
        return [(False, error)] * len(items)


def _outcome(succeeded: bool, value: Any) -> Outcome:
    if not succeeded:
        return False, _exception(value)
    try:
        return True, pickle.loads(value)
    except Exception as error:
        return False, make("SM-0202", f"a result cannot be unpickled here: {error}")


def _exception(failed: dict[str, Any]) -> Exception:
    """The user's own exception where it survived the way, with the platform's report as cause."""
    report = from_failure(failed)
    if failed.get("pickle") is None:
        return report
    try:
        own = pickle.loads(failed["pickle"])
    except Exception:
        return report
    if not isinstance(own, Exception):
        return report
    own.__cause__ = report
    return own


def _results(outcomes: list[Outcome], name: str, on_error: str) -> list[Any]:
    errors = [(index, value) for index, (succeeded, value) in enumerate(outcomes) if not succeeded]
    if not errors or on_error == "return":
        return [value for _, value in outcomes]
    results = [value if succeeded else None for succeeded, value in outcomes]
    raise _map_error(errors, results, name) from errors[0][1]


def _map_error(errors: list[tuple[int, Exception]], results: list[Any], name: str) -> MapError:
    index, first = errors[0]
    known = first if isinstance(first, Error) else first.__cause__
    report: dict[str, Any] = {"excerpt": [repr(first)]}
    if isinstance(known, Error):
        report = dict(known.report)
    report.setdefault("code", "SM-0201")
    report["message"] = (
        f"`{name}` failed for {len(errors)} of {len(results)} items, first for item {index}"
    )
    report.setdefault("hint", 'get the others\' results with on_error="return"')
    return MapError(report, errors, results)
