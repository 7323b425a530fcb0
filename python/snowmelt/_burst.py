"""`sm.burst`: one function over ranks or items, concurrently on all hosts; all start or none.

Invariant: either every function was started before the first was called, or none was called.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from . import _amounts, _outcomes, _progress, _secrets
from ._client import Client, client
from ._files import Files
from ._function import Deployed, code_of, limits, unique_name
from ._map import with_options
from ._network import Network, NetworkArgument, network_of
from ._outcomes import Outcome
from .errors import Error, from_report, hide_internal_frames, make

R = TypeVar("R")

# How long to wait for a server that is being started again, and how often it is tried.
_RETURNS_WITHIN_SECONDS = 30.0
_TRIED_AGAIN_AFTER_SECONDS = 0.5

# How often the server is asked how far a burst is that is shown.
_ASKED_EVERY_SECONDS = 0.5


class BurstResults(list[R], Generic[R]):
    """The results of the functions by rank, with information about the burst."""

    job: str
    """The job's id."""
    hosts: list[dict[str, Any]]
    """Its hosts: name, first rank, count, microseconds until started and until loaded."""
    started_ms: float
    """Milliseconds from the request until every function was ready to be called."""
    wall_ms: float
    """Milliseconds from the request to the last result."""
    logs: list[str]
    """The output of the functions."""


@hide_internal_frames
def burst(
    function: Callable[[Any], R],
    over: int | Iterable[Any],
    *,
    network: NetworkArgument = None,
    packages: Sequence[str] | None = None,
    memory: _amounts.Memory | None = None,
    cpu: _amounts.Processor | None = None,
    timeout: _amounts.Duration | None = None,
    start_within: _amounts.Duration | None = None,
    environment: Mapping[str, str] | None = None,
    files: Files | None = None,
    secrets: Mapping[str, str] | None = None,
    hosts: int | None = None,
    on_error: str = "raise",
    results: str = "plain",
    progress: bool | None = None,
    job: str | None = None,
) -> BurstResults[R]:
    """Calls `function(rank)` for each rank from 0 to `over - 1`, or `function(item)` for each of
    the items, each in its own sandbox, concurrently. See docs/reference/python.md.

    With `network="job"` the functions can communicate by plain sockets (`sm.job()`); with
    `network=sm.Network(egress=[...])` they can also reach the listed addresses. The default is the
    network of `@sm.function`.
    Raises `MapError` once all have ended, if some failed; with `on_error="return"` the result
    contains the exceptions instead. `results` is as in `sm.map`.

    A connection that breaks is opened again: the burst goes on without it for 10 seconds. With
    `job=sm.new_job()`, kept where the next run of this program finds it, that run gets the results
    of the same burst instead of a second one.
    """
    _outcomes.check(on_error, results)
    items = _items(over)
    given = limits(memory=memory, cpu=cpu, timeout=timeout, environment=environment)
    made = with_options(function, packages, given, files)
    if secrets is not None:
        made.secrets = _secrets.declared(secrets)
    wanted = made.network if network is None else network_of(network)
    name = unique_name(made.function)
    platform = client(made.tenant)
    request: dict[str, Any] = {
        "function": {**code_of(platform, made), "name": name, "mode": "map", "ephemeral": True},
        "events": [_event(item, made.function.__name__, results) for item in items],
    }
    request |= _common_fields(wanted, start_within, hosts, job)
    answer = _run(platform, "/v1/bursts", request, _progress.enabled(progress))
    return _results(answer, made.function.__name__, on_error, lambda done: _ended(done, results))


def burst_deployed(
    deployed: Deployed,
    over: int | Iterable[Any],
    *,
    network: NetworkArgument = None,
    start_within: _amounts.Duration | None = None,
    hosts: int | None = None,
    on_error: str = "raise",
    progress: bool | None = None,
    job: str | None = None,
) -> BurstResults[Any]:
    """`burst` of a deployed function of any language: events and results are JSON."""
    _outcomes.check(on_error, "plain")
    events = _items(over)
    wanted = deployed.network if network is None else network_of(network)
    request = {"events": events, **_common_fields(wanted, start_within, hosts, job)}
    path = f"/v1/functions/{deployed.name}/bursts"
    try:
        answer = _run(deployed.client, path, request, _progress.enabled(progress))
    except (TypeError, ValueError) as error:
        hint = "give JSON values; sm.burst takes any object that can be pickled"
        raise make("SM-0222", f"an event is not JSON: {error}", hint=hint) from None
    return _results(answer, deployed.name, on_error, _plain)


def _items(over: int | Iterable[Any]) -> list[Any]:
    items = list(range(_amounts.count("over", over))) if isinstance(over, int) else list(over)
    if not items:
        raise make("SM-0110", "a burst needs at least one function")
    return items


def _common_fields(
    network: Network | None,
    start_within: _amounts.Duration | None,
    hosts: int | None,
    job: str | None,
) -> dict[str, Any]:
    """The fields that `BurstRequest` and `BurstCalls` of the API share, except the events."""
    fields: dict[str, Any] = {"job": new_job() if job is None else job}
    if start_within is not None:
        fields["start_within_ms"] = _amounts.milliseconds(start_within)
    if hosts is not None:
        fields["most_hosts"] = _amounts.count("hosts", hosts)
    if network is not None:
        fields["network"] = network.request()
    return fields


def _event(item: Any, name: str, results: str) -> dict[str, str]:
    try:
        return _outcomes.event([item], results)
    except Exception as error:
        reason = f"an item for `{name}` cannot be pickled: {type(error).__name__}: {error}"
        raise make("SM-0222", reason) from error


def new_job() -> str:
    """A new identifier for a burst. Later ones sort after earlier ones."""
    milliseconds = int(time.time() * 1000)
    return f"j-{milliseconds:012x}{uuid.uuid4().hex[:20]}"


def _run(platform: Client, path: str, request: dict[str, Any], shown: bool) -> dict[str, Any]:
    line, job = _progress.Line(shown), request["job"]
    try:
        try:
            with _followed(platform, job, line if shown else None):
                answer: dict[str, Any] = platform.call("POST", path, request)
            return answer
        except Error as lost:
            if lost.code != "SM-0503" or platform.server.is_private:
                raise
            line.show(f"the server does not answer; waiting for it and {job}")
            return _wait_again(platform, job, lost)
    except Error:
        raise
    except BaseException:
        platform.cancel()
        # Otherwise it would go on until nobody has claimed it for too long.
        with contextlib.suppress(Error):
            platform.call("DELETE", f"/v1/bursts/{job}")
        raise
    finally:
        line.clear()


@contextlib.contextmanager
def _followed(platform: Client, job: str, line: _progress.Line | None) -> Iterator[None]:
    """Shows meanwhile how far a burst is, and the room that it waits for."""
    over, drawing = threading.Event(), threading.Lock()

    def follow(line: _progress.Line) -> None:
        while not over.wait(_ASKED_EVERY_SECONDS):
            # Without an answer the line stays as it is.
            with contextlib.suppress(Error):
                text = _progress.burst_text(platform.call("GET", f"/v1/bursts/{job}"))
                with drawing:
                    if not over.is_set():
                        line.show(text)

    if line is not None:
        threading.Thread(target=follow, args=(line,), daemon=True).start()
    try:
        yield
    finally:
        with drawing:
            over.set()


def _wait_again(platform: Client, job: str, lost: Error) -> dict[str, Any]:
    """The answer of a burst whose connection was lost, if the server comes back in time."""
    deadline = time.monotonic() + _RETURNS_WITHIN_SECONDS
    while True:
        time.sleep(_TRIED_AGAIN_AFTER_SECONDS)
        try:
            answer: dict[str, Any] = platform.call("GET", f"/v1/bursts/{job}/answer")
            return answer
        except Error as error:
            if error.code == "SM-0707":
                # It had not begun.
                raise lost from None
            if error.code != "SM-0503" or time.monotonic() > deadline:
                raise


def _results(
    answer: dict[str, Any],
    name: str,
    on_error: str,
    ended: Callable[[dict[str, Any]], Outcome],
) -> BurstResults[Any]:
    outcomes = [ended(invocation) for invocation in answer["invocations"]]
    values, errors = _outcomes.gather(outcomes, on_error)
    results: BurstResults[Any] = BurstResults(values)
    results.job = answer["job"]
    results.hosts = answer["hosts"]
    results.started_ms = answer["started_us"] / 1000
    results.wall_ms = answer["wall_us"] / 1000
    results.logs = [entry["text"] for entry in answer["logs"]]
    if not errors:
        return results
    # The original failure first, then the ranks that were ended because of it.
    errors.sort(key=lambda error: getattr(error[1], "code", None) == "SM-0705")
    raise _outcomes.map_error(errors, values, name) from errors[0][1]


def _plain(invocation: dict[str, Any]) -> Outcome:
    if invocation.get("error"):
        return False, from_report(invocation["error"])
    return True, invocation.get("result")


def _ended(invocation: dict[str, Any], results: str) -> Outcome:
    if invocation.get("error"):
        return False, from_report(invocation["error"])
    try:
        [outcome] = _outcomes.read(invocation["result"], 1, results)
        return outcome
    except Exception as error:
        return False, error
