"""`sm.burst`: one function over ranks or items, all at once on all hosts, or not at all.

Invariant: either every function was started before the first was called, or none was called.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from . import _amounts, _progress
from ._client import Client, client
from ._function import Deployed, limits, passing_name
from ._map import Outcome, _map_error, _outcome, _with_options
from ._network import Network, Wanted, network_of
from ._ship import pickled
from ._vendor import cloudpickle
from .errors import from_report, make

R = TypeVar("R")


class BurstResults(list[R], Generic[R]):
    """What the functions returned, by rank, and how the burst went."""

    job: str
    """Its id."""
    hosts: list[dict[str, Any]]
    """Where it ran: name, first rank, count, microseconds until started and until loaded."""
    started_ms: float
    """From the request until every function could be called."""
    wall_ms: float
    """From the request to the last answer."""
    logs: list[str]
    """What functions wrote."""


def burst(
    function: Callable[[Any], R],
    over: int | Iterable[Any],
    *,
    network: Wanted = None,
    packages: Sequence[str] | None = None,
    memory: _amounts.Memory | None = None,
    cpu: _amounts.Processor | None = None,
    timeout: _amounts.Duration | None = None,
    start_within: _amounts.Duration | None = None,
    environment: Mapping[str, str] | None = None,
    hosts: int | None = None,
    on_error: str = "raise",
    progress: bool | None = None,
) -> BurstResults[R]:
    """Calls `function(rank)` for each rank from 0 to `over - 1`, or `function(item)` for each of
    the items, in as many sandboxes at once. See docs/python.md.

    With `network="job"` the functions can talk to each other by plain sockets (`sm.job()`); with
    `network=sm.Network(egress=[...])` they reach outside what that names as well. Left out, it is
    the network of `@sm.function`.
    Raises `MapError` once all ended, if some failed; `on_error="return"` gives their exceptions in
    their places instead.
    """
    items = _items(over, on_error)
    given = limits(memory=memory, cpu=cpu, timeout=timeout, environment=environment)
    made = _with_options(function, packages, given)
    wanted = made.network if network is None else network_of(network)
    name = passing_name(made.function)
    request: dict[str, Any] = {
        "function": {
            "name": name,
            "code": pickled(made.function, made.function.__name__),
            "handler": made.function.__name__,
            "mode": "map",
            "packages": made.packages,
            "options": made.options,
            "ephemeral": True,
        },
        "events": [_event(item, made.function.__name__) for item in items],
    }
    if made.tenant is not None:
        request["function"]["tenant"] = made.tenant
    request |= _terms(wanted, start_within, hosts)
    answer = _run(client(), "/v1/bursts", request, _progress.wanted(progress))
    return _results(answer, made.function.__name__, on_error, _unpickled)


def burst_deployed(
    deployed: Deployed,
    over: int | Iterable[Any],
    *,
    network: Wanted = None,
    start_within: _amounts.Duration | None = None,
    hosts: int | None = None,
    on_error: str = "raise",
    progress: bool | None = None,
) -> BurstResults[Any]:
    """`burst` of a deployed function, in whatever language it is: events and results are JSON."""
    events = _items(over, on_error)
    wanted = deployed.network if network is None else network_of(network)
    request = {"events": events, **_terms(wanted, start_within, hosts)}
    path = f"/v1/functions/{deployed.name}/bursts"
    try:
        answer = _run(deployed.client, path, request, _progress.wanted(progress))
    except (TypeError, ValueError) as error:
        hint = "give JSON values; sm.burst takes any object that can be pickled"
        raise make("SM-0222", f"an event is not JSON: {error}", hint=hint) from None
    return _results(answer, deployed.name, on_error, _plain)


def _items(over: int | Iterable[Any], on_error: str) -> list[Any]:
    if on_error not in ("raise", "return"):
        raise TypeError(f"on_error={on_error!r} is neither 'raise' nor 'return'")
    items = list(range(over)) if isinstance(over, int) else list(over)
    if not items:
        raise TypeError("a burst has at least one function")
    return items


def _terms(
    network: Network | None, start_within: _amounts.Duration | None, hosts: int | None
) -> dict[str, Any]:
    """What `BurstRequest` and `BurstCalls` of the API have in common, beside the events."""
    terms: dict[str, Any] = {}
    if start_within is not None:
        terms["start_within_ms"] = _amounts.milliseconds(start_within)
    if hosts is not None:
        terms["most_hosts"] = hosts
    if network is not None:
        terms["network"] = network.request()
    return terms


def _event(item: Any, name: str) -> str:
    try:
        return base64.b64encode(cloudpickle.dumps([item])).decode()
    except Exception as error:
        reason = f"an item for `{name}` cannot be pickled: {type(error).__name__}: {error}"
        raise make("SM-0222", reason) from error


def _run(platform: Client, path: str, request: dict[str, Any], shown: bool) -> dict[str, Any]:
    line = _progress.Line(shown)
    try:
        line.show(f"{len(request['events']):,} functions start and run")
        answer: dict[str, Any] = platform.call("POST", path, request)
        return answer
    except BaseException:
        platform.cancel()
        raise
    finally:
        line.clear()


def _results(
    answer: dict[str, Any],
    name: str,
    on_error: str,
    ended: Callable[[dict[str, Any]], Outcome],
) -> BurstResults[Any]:
    outcomes = [ended(invocation) for invocation in answer["invocations"]]
    errors = [(rank, value) for rank, (succeeded, value) in enumerate(outcomes) if not succeeded]
    results: BurstResults[Any] = BurstResults(value for _, value in outcomes)
    results.job = answer["job"]
    results.hosts = answer["hosts"]
    results.started_ms = answer["started_us"] / 1000
    results.wall_ms = answer["wall_us"] / 1000
    results.logs = [entry["text"] for entry in answer["logs"]]
    if not errors or on_error == "return":
        return results
    # Before those that were ended because of it comes who failed by itself.
    errors.sort(key=lambda error: getattr(error[1], "code", None) == "SM-0705")
    values = [value if succeeded else None for succeeded, value in outcomes]
    raise _map_error(errors, values, name) from errors[0][1]


def _plain(invocation: dict[str, Any]) -> Outcome:
    if invocation.get("error"):
        return False, from_report(invocation["error"])
    return True, invocation.get("result")


def _unpickled(invocation: dict[str, Any]) -> Outcome:
    if invocation.get("error"):
        return False, from_report(invocation["error"])
    try:
        [outcome] = pickle.loads(base64.b64decode(invocation["result"]["results"]))
        return _outcome(*outcome)
    except Exception as error:
        return False, error
