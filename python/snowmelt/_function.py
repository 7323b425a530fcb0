"""`@sm.function`: a Python handler that runs in a sandbox, here or deployed by a name.

Invariant: an event and its answer are JSON wherever the handler runs remotely, so that a handler
that works with `remote` works deployed; only `map` takes any object.
"""

from __future__ import annotations

import functools
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from . import _amounts
from ._client import Client, client
from ._ship import pickled
from .errors import from_report, make

E = TypeVar("E")
R = TypeVar("R")


class Function(Generic[E, R]):
    """A handler with its limits; calling it calls the handler here."""

    def __init__(
        self, handler: Callable[[E], R], packages: Sequence[str], options: dict[str, Any]
    ) -> None:
        functools.update_wrapper(self, handler)
        self.function = handler
        self.packages = list(packages)
        self.options = options
        self._lock = threading.Lock()
        self._ephemeral: Deployed | None = None

    def __call__(self, event: E) -> R:
        return self.function(event)

    def __repr__(self) -> str:
        return f"<function {self.function.__name__} of snowmelt>"

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "packages": self.packages, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["function"], state["packages"], state["options"])  # type: ignore[misc]

    def local(self, event: E) -> R:
        """Calls the handler in this process."""
        return self.function(event)

    def remote(self, event: E) -> Any:
        """Calls the handler in a sandbox and waits. `event` and the answer are JSON values."""
        return self._deployed().remote(event)

    def spawn(self, event: E) -> Invocation:
        """Calls the handler in a sandbox and does not wait."""
        return self._deployed().spawn(event)

    def map(self, items: Iterable[E], **options: Any) -> list[R]:
        """`sm.map` with this handler, its packages and limits."""
        from ._map import map as map_items

        return map_items(self, items, **options)

    def deploy(self, name: str | None = None) -> Deployed:
        """Deploys the handler on the running platform (`snowmelt up`) until it is removed."""
        running = client()
        if running.server.private:
            raise make(
                "SM-0503",
                "there is no platform that a function could stay deployed on",
                hint="start one: snowmelt up",
            )
        return deploy(running, self, name or self.function.__name__, "event", ephemeral=False)

    def _deployed(self) -> Deployed:
        with self._lock:
            here = client()
            if self._ephemeral is None or self._ephemeral.client.server is not here.server:
                name = passing_name(self.function)
                self._ephemeral = deploy(here, self, name, "event", ephemeral=True)
            return self._ephemeral


class Deployed:
    """A function on a platform, by its name."""

    def __init__(self, platform: Client, name: str) -> None:
        self.client, self.name = platform, name

    def __repr__(self) -> str:
        return f"<deployed function {self.name}>"

    def remote(self, event: Any) -> Any:
        """Calls it and waits. Raises `FunctionError` if it failed."""
        try:
            body = {"event": event}
            done = self.client.call("POST", f"/v1/functions/{self.name}/invocations", body)
        except (TypeError, ValueError) as error:
            hint = "give JSON values; `map` takes any object that can be pickled"
            raise make("SM-0222", f"the event is not JSON: {error}", hint=hint) from None
        if done.get("error"):
            raise from_report(done["error"])
        return done.get("result")

    def spawn(self, event: Any) -> Invocation:
        """Calls it and does not wait."""
        return Invocation(lambda: self.remote(event))

    def logs(self, tail: int = 100) -> list[dict[str, Any]]:
        """What its last invocations wrote, oldest first."""
        return list(self.client.call("GET", f"/v1/functions/{self.name}/logs?tail={tail}"))

    def remove(self) -> None:
        """Takes it off the platform."""
        self.client.call("DELETE", f"/v1/functions/{self.name}")


class Invocation:
    """A call that is under way."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        # A daemon, so that a call that hangs does not keep the program from ending.
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._value = call()
        except BaseException as error:
            self._error = error
        self._done.set()

    def done(self) -> bool:
        """Whether the answer, or the error, is there."""
        return self._done.is_set()

    def get(self, timeout: float | None = None) -> Any:
        """The answer; waits for it, at most `timeout` seconds. Raises `TimeoutError`, and the
        call's own error."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"the call did not end within {timeout} s")
        if self._error is not None:
            raise self._error
        return self._value


@overload
def function(handler: Callable[[E], R], /) -> Function[E, R]: ...


@overload
def function(
    *,
    packages: Sequence[str] = (),
    memory: _amounts.Memory | None = None,
    cpu: _amounts.Processor | None = None,
    timeout: _amounts.Duration | None = None,
    environment: Mapping[str, str] | None = None,
    concurrency: int | None = None,
) -> Callable[[Callable[[E], R]], Function[E, R]]: ...


def function(
    handler: Callable[[Any], Any] | None = None,
    /,
    *,
    packages: Sequence[str] = (),
    memory: _amounts.Memory | None = None,
    cpu: _amounts.Processor | None = None,
    timeout: _amounts.Duration | None = None,
    environment: Mapping[str, str] | None = None,
    concurrency: int | None = None,
) -> Any:
    """Makes `def handler(event)` a function that runs in sandboxes; see docs/python.md."""
    options = limits(memory, cpu, timeout, environment, concurrency)

    def decorate(plain: Callable[[Any], Any]) -> Function[Any, Any]:
        return Function(plain, packages, options)

    return decorate if handler is None else decorate(handler)


def limits(
    memory: _amounts.Memory | None,
    cpu: _amounts.Processor | None,
    timeout: _amounts.Duration | None,
    environment: Mapping[str, str] | None,
    concurrency: int | None,
) -> dict[str, Any]:
    """`FunctionOptions` of the API, with only what was given: the platform has the defaults."""
    options: dict[str, Any] = {}
    if memory is not None:
        options["memory"] = _amounts.memory_bytes(memory)
    if cpu is not None:
        options["cpu"] = _amounts.cpu_millis(cpu)
    if timeout is not None:
        options["timeout_ms"] = _amounts.milliseconds(timeout)
    if environment is not None:
        options["environment"] = dict(environment)
    if concurrency is not None:
        options["concurrency"] = concurrency
    return options


def deploy(
    platform: Client, made: Function[Any, Any], name: str, mode: str, *, ephemeral: bool
) -> Deployed:
    """Deploys a handler for JSON events (`event`) or pickled items (`map`)."""
    spec = {
        "name": name,
        "code": pickled(made.function, made.function.__name__),
        "handler": made.function.__name__,
        "mode": mode,
        "packages": made.packages,
        "options": made.options,
        "ephemeral": ephemeral,
    }
    platform.call("POST", "/v1/functions", spec)
    return Deployed(platform, name)


def passing_name(handler: Any) -> str:
    """A name that no other function has, for one that nobody calls by its name."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "", getattr(handler, "__name__", ""))[:40]
    stem = stem if stem[:1].isalpha() else f"f{stem}"
    return f"{stem}-{uuid.uuid4().hex[:16]}"
