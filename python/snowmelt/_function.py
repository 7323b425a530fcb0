"""`@sm.function`: a Python handler that runs in a sandbox, temporarily or deployed under a name.

Invariant: events and results of remote calls are JSON, so that a handler that works with `remote`
also works when it is deployed; only `map` accepts arbitrary objects.
"""

from __future__ import annotations

import functools
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import _amounts, _broadcast, _prints, _secrets
from ._client import Client, client
from ._files import Files, declared, send
from ._network import Network, NetworkArgument, network_of
from ._prints import Prints
from ._ship import code_of as shipped
from ._versions import with_version
from ._wheels import upload_wheels
from .errors import from_report, hide_internal_frames, make

if TYPE_CHECKING:
    from ._burst import BurstResults

E = TypeVar("E")
R = TypeVar("R")


class Function(Generic[E, R]):
    """A handler with its limits; calling it calls the handler in this process."""

    def __init__(
        self,
        handler: Callable[[E], R],
        packages: Sequence[str],
        options: dict[str, Any],
        tenant: str | None = None,
        network: Network | None = None,
        files: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        image: str | None = None,
    ) -> None:
        functools.update_wrapper(self, handler)
        self.function = handler
        self.packages = list(packages)
        self.options = options
        self.tenant = tenant
        self.network = network
        # Absolute paths by the names that the handler uses.
        self.files = dict(files or {})
        # References by the names that the handler uses.
        self.secrets = dict(secrets or {})
        # A block image in which it runs.
        self.image = image
        self._lock = threading.Lock()
        self._ephemeral: Deployed | None = None

    def __call__(self, event: E) -> R:
        return self.function(event)

    def __repr__(self) -> str:
        return f"<function {self.function.__name__} of snowmelt>"

    def __getstate__(self) -> dict[str, Any]:
        names = (
            "function",
            "packages",
            "options",
            "tenant",
            "network",
            "files",
            "secrets",
            "image",
        )
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state.values())  # type: ignore[misc]

    def local(self, event: E) -> R:
        """Calls the handler in this process."""
        return self.function(event)

    @hide_internal_frames
    def remote(self, event: E) -> Any:
        """Calls the handler in a sandbox and waits. `event` and the result are JSON values."""
        return self._deployed().remote(event)

    @hide_internal_frames
    def spawn(self, event: E) -> Invocation:
        """Calls the handler in a sandbox and does not wait."""
        return self._deployed().spawn(event)

    @hide_internal_frames
    def spawn_map(self, events: Iterable[E]) -> list[Invocation]:
        """Calls the handler for each event concurrently, and does not wait. Returns the invocations
        in order. Missing sandboxes are started by one request."""
        return self._deployed().spawn_map(events)

    def map(self, items: Iterable[E], **options: Any) -> list[R]:
        """`sm.map` with this handler, its packages and limits."""
        from ._map import map as map_items

        return map_items(self, items, **options)

    def burst(self, over: int | Iterable[Any], **options: Any) -> BurstResults[R]:
        """`sm.burst` with this handler, its packages, limits and network."""
        from ._burst import burst

        return burst(self, over, **options)

    @hide_internal_frames
    def deploy(self, name: str | None = None) -> Deployed:
        """Deploys the handler to the running server (`snowmelt up`) until it is removed."""
        running = client(self.tenant)
        if running.server.private:
            raise make(
                "SM-0503",
                "no server is running that can keep a deployed function",
                hint="start one: snowmelt up",
            )
        return deploy(running, self, name or self.function.__name__, "event", ephemeral=False)

    def _deployed(self) -> Deployed:
        with self._lock:
            here = client(self.tenant)
            if self._ephemeral is None or self._ephemeral.client.server is not here.server:
                name = unique_name(self.function)
                self._ephemeral = deploy(here, self, name, "event", ephemeral=True)
            return self._ephemeral


class Deployed:
    """A deployed function of a platform."""

    def __init__(
        self,
        platform: Client,
        name: str,
        network: Network | None = None,
        shown: str | None = None,
        prints: Prints | None = None,
    ) -> None:
        self.client, self.name, self.network = platform, name, network
        # With what it prints; a temporary function has a name of its own.
        self._shown, self._prints = shown or name, prints

    def __repr__(self) -> str:
        return f"<deployed function {self.name}>"

    @hide_internal_frames
    def remote(self, event: Any) -> Any:
        """Calls it and waits. Raises `FunctionError` if it failed."""
        return self._answer(self._post("invocations", {"event": event}, "the event"))

    def _answer(self, done: dict[str, Any]) -> Any:
        prints = self._prints or Prints(_prints.enabled())
        prints.show(self._shown, done.get("printed") or "")
        if done.get("error"):
            raise from_report(done["error"])
        return done.get("result")

    def spawn(self, event: Any) -> Invocation:
        """Calls it and does not wait."""
        return Invocation(lambda: self.remote(event))

    def spawn_map(self, events: Iterable[Any]) -> list[Invocation]:
        """Calls it for each event concurrently, and does not wait. Returns the invocations in
        order."""
        all_events = list(events)
        if not all_events:
            return []
        batch = Invocation(lambda: self._batch(all_events))
        return [_Part(batch, index, self._answer) for index in range(len(all_events))]

    @hide_internal_frames
    def burst(self, over: int | Iterable[Any], **options: Any) -> BurstResults[Any]:
        """Calls it for each rank from 0 to `over - 1`, or for each event, concurrently, each in its
        own sandbox, on all hosts: `sm.burst` with JSON events and results, and the function's
        network."""
        from ._burst import burst_deployed

        return burst_deployed(self, over, **options)

    def _batch(self, events: list[Any]) -> list[dict[str, Any]]:
        return list(self._post("batches", {"events": events}, "an event"))

    def _post(self, what: str, body: dict[str, Any], sent: str) -> Any:
        """Requests calls; `sent` describes the body in errors."""
        try:
            return self.client.call("POST", f"/v1/functions/{self.name}/{what}", body)
        except (TypeError, ValueError) as error:
            hint = "give JSON values; `map` takes any object that can be pickled"
            raise make("SM-0222", f"{sent} is not JSON: {error}", hint=hint) from None

    @hide_internal_frames
    def logs(self, tail: int = 100) -> list[dict[str, Any]]:
        """The output of its last invocations, oldest first."""
        return list(self.client.call("GET", f"/v1/functions/{self.name}/logs?tail={tail}"))

    @hide_internal_frames
    def remove(self) -> None:
        """Removes it from the platform."""
        self.client.call("DELETE", f"/v1/functions/{self.name}")


class Invocation:
    """A running call."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        # A daemon thread, so that a hanging call does not keep the program from exiting.
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._value = call()
        except BaseException as error:
            self._error = error
        self._done.set()

    def done(self) -> bool:
        """Whether the call has returned or failed."""
        return self._done.is_set()

    @hide_internal_frames
    def get(self, timeout: float | None = None) -> Any:
        """The result; waits for it at most `timeout` seconds. Raises `TimeoutError`, or the error
        of the call."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"the call did not end within {timeout} s")
        if self._error is not None:
            raise self._error
        return self._value


class _Part(Invocation):
    """One call of a batch; it is done when the whole batch is done."""

    def __init__(self, batch: Invocation, index: int, answer: Callable[[Any], Any]) -> None:
        self._batch, self._index, self._answer = batch, index, answer
        self._value: Any = None
        self._read = False

    def done(self) -> bool:
        return self._batch.done()

    @hide_internal_frames
    def get(self, timeout: float | None = None) -> Any:
        done = self._batch.get(timeout)[self._index]
        if not self._read and not done.get("error"):
            # What it printed is shown once.
            self._value, self._read = self._answer(done), True
        return self._value if self._read else self._answer(done)


@overload
def function(handler: Callable[[E], R], /) -> Function[E, R]: ...


@overload
def function(
    *,
    packages: Sequence[str] = (),
    python: str | None = None,
    memory: _amounts.Memory | None = None,
    cpu: _amounts.Processor | None = None,
    timeout: _amounts.Duration | None = None,
    environment: Mapping[str, str] | None = None,
    instances: int | None = None,
    concurrency: int | None = None,
    prewarmed: int | None = None,
    idle: _amounts.Duration | None = None,
    keep: _amounts.Duration | None = None,
    pids: int | None = None,
    scratch: _amounts.Memory | None = None,
    open_files: int | None = None,
    log: _amounts.Memory | None = None,
    files: Files = (),
    secrets: Mapping[str, str] | None = None,
    image: str | None = None,
    writable: Sequence[str] = (),
    tenant: str | None = None,
    network: NetworkArgument = None,
) -> Callable[[Callable[[E], R]], Function[E, R]]: ...


def function(
    handler: Callable[[Any], Any] | None = None, /, *, packages: Sequence[str] = (), **given: Any
) -> Any:
    """Turns `def handler(event)` into a function that runs in sandboxes.

    See docs/reference/python.md."""
    tenant = given.pop("tenant", None)
    network = network_of(given.pop("network", None))
    files = declared(given.pop("files", ()))
    secrets = _secrets.declared(given.pop("secrets", None) or {})
    requirements = with_version(packages, given.pop("python", None))
    image = given.pop("image", None)
    options = limits(**given)

    def decorate(plain: Callable[[Any], Any]) -> Function[Any, Any]:
        return Function(plain, requirements, options, tenant, network, files, secrets, image)

    return decorate if handler is None else decorate(handler)


def _folders(folders: Sequence[str]) -> list[str]:
    if isinstance(folders, str):
        raise TypeError(f"writable= takes a list of folders: [{folders!r}]")
    return [str(folder) for folder in folders]


# For each argument: its name in `FunctionOptions` of the API, and the parser of its value.
_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "memory": ("memory", _amounts.memory_bytes),
    "cpu": ("cpu", _amounts.cpu_millis),
    "timeout": ("timeout_ms", _amounts.milliseconds),
    "environment": ("environment", dict),
    "instances": ("instances", functools.partial(_amounts.count, "instances")),
    "concurrency": ("concurrency", functools.partial(_amounts.count, "concurrency")),
    "prewarmed": ("prewarmed", functools.partial(_amounts.count, "prewarmed", least=0)),
    "idle": ("idle_ms", _amounts.milliseconds),
    "keep": ("keep_ms", _amounts.milliseconds),
    "pids": ("pids", functools.partial(_amounts.count, "pids")),
    "scratch": ("scratch", _amounts.memory_bytes),
    "open_files": ("open_files", functools.partial(_amounts.count, "open_files")),
    "log": ("log", _amounts.memory_bytes),
    "writable": ("writable", _folders),
}


def limits(**given: Any) -> dict[str, Any]:
    """`FunctionOptions` of the API with only the given options; the platform has the defaults."""
    options: dict[str, Any] = {}
    for argument, value in given.items():
        if argument not in _OPTIONS:
            raise TypeError(f"a function has no option {argument!r}")
        if value is not None:
            name, read = _OPTIONS[argument]
            options[name] = read(value)
    return options


def deploy(
    platform: Client,
    made: Function[Any, Any],
    name: str,
    mode: str,
    *,
    ephemeral: bool,
    expected: int = 1,
    prints: Prints | None = None,
) -> Deployed:
    """Deploys a handler for JSON events (`event`) or pickled items (`map`), and starts `expected`
    instances."""
    own = {"name": name, "mode": mode, "expected": expected, "ephemeral": ephemeral}
    spec = {**code_of(platform, made), **own}
    platform.call("POST", "/v1/functions", spec)
    return Deployed(platform, name, made.network, made.function.__name__, prints)


def code_of(platform: Client, made: Function[Any, Any]) -> dict[str, Any]:
    """The fields of the wire `FunctionSpec` that say what runs, once files and wheels are sent.
    Raises `Error`."""
    name = made.function.__name__
    code, broadcasts = shipped(made.function, name, made.packages)
    files = {**send(platform, made.files), **_broadcast.send(platform, broadcasts)}
    return {
        "code": code,
        "handler": name,
        "packages": upload_wheels(platform, made.packages),
        "options": made.options,
        **({"files": files} if files else {}),
        **({"secrets": made.secrets} if made.secrets else {}),
        **({"image": made.image} if made.image else {}),
    }


def unique_name(handler: Any) -> str:
    """A unique name for a temporary function."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "", getattr(handler, "__name__", ""))[:40]
    stem = stem if stem[:1].isalpha() else f"f{stem}"
    return f"{stem}-{uuid.uuid4().hex[:16]}"
