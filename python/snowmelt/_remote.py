"""A UDF as other engines call it: Arrow arrays in, an Arrow array out, computed in sandboxes.

Instances are leased from the platform when threads of the engine call, at most a bound, and are
given back soon after the last call, so that the platform can pause them (CAGE 4, the container
manager as load balancer).

Invariant: rows are sent to an instance once. After the loss of an instance they are sent again only
if the function was declared repeatable.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import _arguments, _called, _server, _transports
from ._called import Called
from ._client import Client, client
from ._lease import Lease, Lost, message_bytes
from ._prints import Printed
from ._remote_server import RemoteServer
from ._shared_memory import LEAST_BYTES
from ._udf import AnyUdf
from .errors import make

# The first number of rows of a call; then it depends on how long calls take.
_FIRST_ROWS = 8192
_MAX_ROWS = 1 << 20
_MAX_BYTES = 16 << 20

# A call of a piece should take between these times: it can be cancelled between two pieces, and a
# message costs less than a thousandth of it.
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 0.2

# How long an instance stays leased without calls.
_LEASED_SECONDS = 1.0

# How long an instance of a function that follows its last version is used.
_FOLLOWED_SECONDS = 10.0

# Attempts of a repeatable function for the same rows.
_ATTEMPTS = 3


# How batches go to an instance, and from how many bytes on in shared memory.
TRANSPORTS = {"auto": LEAST_BYTES, "shared": 0, "socket": None}

# Formats and protocols of other systems, for compatibility and comparison.
OTHER_TRANSPORTS = ("flight", "json", "mlflow", "numpy", "parquet")


def _without_result(schema: Any) -> Any:
    import pyarrow as pa

    return pa.schema(list(schema)[:-1])


class Remote:
    """A function in sandboxes. Threads may call it at the same time, and it can be pickled: engines
    send it to other processes, each of which leases its own instances: those of a platform of
    another host also to other machines."""

    def __init__(
        self,
        called: AnyUdf | Called,
        *,
        instances: int | None = None,
        repeatable: bool = False,
        transport: str = "auto",
        prints: bool | None = None,
    ) -> None:
        if transport not in (*TRANSPORTS, *OTHER_TRANSPORTS):
            names = ", ".join((*TRANSPORTS, *OTHER_TRANSPORTS))
            raise make("SM-0110", f"transport={transport!r} is none of {names}")
        if instances is not None and instances < 1:
            raise make("SM-0110", f"instances={instances} is not a number of instances, at least 1")
        if not isinstance(called, Called):
            called = _called.given(called)
        self._called = called
        self.name, self.schema = called.name, called.schema
        self.deterministic = called.deterministic
        self._arguments = _without_result(called.schema)
        _transports.check(transport, self.name, self.schema)
        # The answer of a table function may be for a part of the rows.
        self._in_parts = called.kind == "table"
        if self._in_parts and transport in OTHER_TRANSPORTS:
            message = f"transport={transport!r} cannot pass the table function `{self.name}`"
            raise make("SM-0110", message, hint="omit transport=")
        self.repeatable = repeatable
        self.prints = prints
        self.transport = transport
        self.instances = instances or os.cpu_count() or 1
        # The platform that this process uses, also for the processes that it starts.
        self._server = _server.current().for_leases()
        if isinstance(self._server, RemoteServer) and transport not in ("auto", "socket"):
            raise make(
                "SM-0110",
                f"transport={transport!r} passes descriptors, which lead to no other host",
                hint='use transport="auto"',
            )
        self._tenant = client().tenant
        self._request: dict[str, Any] = {
            "runs": called.runs,
            **({} if self._tenant is None else {"tenant": self._tenant}),
            # All others pass descriptors, which lead to no other host of a cluster.
            **({} if transport in ("auto", "socket") else {"here": True}),
        }
        self._pool: _Pool | None = None

    @property
    def arguments(self) -> Any:
        """`pyarrow.Schema` of the arguments."""
        return self._arguments

    @property
    def returns(self) -> Any:
        """`pyarrow.DataType` of the result."""
        return self.schema.field(len(self.schema) - 1).type

    def __call__(self, *columns: Any, rows: int | None = None) -> Any:
        """The result of each row, as a `pyarrow.Array`. `rows` is their number for a function
        without parameters. Raises `Error`."""
        import pyarrow as pa

        batch = _arguments.batch(self.name, list(columns), self.arguments, rows)
        if batch.num_rows == 0:
            return pa.array([], self.returns)
        pieces = self._current_pool().call(batch)
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def is_of(self, called: Called) -> bool:
        """False once the function has changed, with what it refers to, and once this process uses
        another platform, for example after its own has ended."""
        return called.runs == self._called.runs and _server.current().path == self._server.path

    @property
    def follows(self) -> bool:
        """Whether its new leases are of the last version."""
        return self._called.follows

    @property
    def busy(self) -> int:
        """Instances of this process that have a call."""
        return 0 if self._pool is None else self._pool.busy()

    def close(self) -> None:
        """Ends all calls, and gives idle instances back."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def _current_pool(self) -> _Pool:
        pool = self._pool
        if pool is None or pool.process != os.getpid():
            with _pools_lock:
                pool = self._pool
                # After a fork the connections belong to the parent process.
                if pool is None or pool.process != os.getpid():
                    pool = self._pool = _Pool(self)
        return pool

    def lease(self) -> Lease:
        """A new lease. Raises `Error`."""
        request = self._request
        if self._called.follows:
            platform = Client(self._server, self._tenant)
            request = {**request, "runs": _called.last_version(self._called, platform)}
        if self.transport in OTHER_TRANSPORTS:
            return Lease(self._server, request, self.schema, None, self.transport)
        share_from = TRANSPORTS[self.transport]
        return Lease(self._server, request, self.schema, share_from, in_parts=self._in_parts)


_pools_lock = threading.Lock()
_pools: weakref.WeakSet[_Pool] = weakref.WeakSet()


class _Pool:
    """The leased instances of a function in this process."""

    def __init__(self, remote: Remote) -> None:
        self.process = os.getpid()
        self._remote = weakref.proxy(remote)
        self._name, self._repeatable = remote.name, remote.repeatable
        shown = self._prints = Printed(remote.name, remote.prints)
        self._used_seconds = _FOLLOWED_SECONDS if remote.follows else float("inf")
        self._most = remote.instances
        self._lock = threading.Lock()
        self._free = threading.Semaphore(self._most)
        # The one that was used last is last: its caches are warm.
        self._idle: list[tuple[Lease, float]] = []
        self._busy: set[Lease] = set()
        self._returning: threading.Timer | None = None
        self._closed = False
        self._rows = _FIRST_ROWS
        # Of a function that a thread calls with more rows than one call has.
        self._threads: ThreadPoolExecutor | None = None
        weakref.finalize(remote, _give_all_back, self._idle, self._lock, self.process, shown)
        _pools.add(self)

    def call(self, batch: Any) -> list[Any]:
        """The results of pieces of the batch, in their order."""
        first = self._piece(batch, 0)
        if first.num_rows == batch.num_rows:
            return [self._call(batch, 0)]
        if self._most == 1:
            return [self._call(piece, start) for piece, start in self._pieces(batch)]
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._most, f"snowmelt-{self._name}")
        calls = [
            self._threads.submit(self._call, piece, start) for piece, start in self._pieces(batch)
        ]
        try:
            return [call.result() for call in calls]
        except BaseException as error:
            for call in calls:
                call.cancel()
            if not isinstance(error, Exception):
                # Ctrl-C. A function that failed leaves the calls of others alone.
                self._end_busy()
            raise

    def _pieces(self, batch: Any) -> Iterator[tuple[Any, int]]:
        start = 0
        while start < batch.num_rows:
            piece = self._piece(batch, start)
            yield piece, start
            start += piece.num_rows

    def _piece(self, batch: Any, start: int) -> Any:
        """At most so many rows as one call should have."""
        is_whole = start == 0 and batch.num_rows <= self._rows
        piece = batch if is_whole else batch.slice(start, self._rows)
        while piece.num_rows > 1 and (size := message_bytes(piece)) > _MAX_BYTES:
            share = max(1, piece.num_rows * _MAX_BYTES // size)
            piece = batch.slice(start, min(share, piece.num_rows - 1))
        return piece

    def _call(self, piece: Any, start: int) -> Any:
        """One call. An instance is used again only if its call has come to its end."""
        attempts = _ATTEMPTS if self._repeatable else 1
        for attempt in range(attempts):
            lease = self._take()
            began = time.monotonic()
            try:
                result = lease.call(piece, start)
            except Lost as lost:
                self._drop(lease)
                if attempt + 1 == attempts or not _is_worth_another(lost):
                    raise lost.error from None
            except Exception:
                # The function has failed; the instance is whole.
                self._put(lease)
                raise
            except BaseException:
                self._drop(lease)
                raise
            else:
                self._adapt(piece.num_rows, time.monotonic() - began)
                self._put(lease)
                return result
        raise AssertionError("unreachable")

    def _adapt(self, rows: int, seconds: float) -> None:
        """More rows for calls that are short, fewer for long ones."""
        if rows < self._rows // 2:
            return
        if seconds < _SHORTEST_SECONDS:
            self._rows = min(self._rows * 2, _MAX_ROWS)
        elif seconds > _LONGEST_SECONDS:
            self._rows = max(self._rows // 2, 1)

    def _take(self) -> Lease:
        self._free.acquire()
        try:
            lease = self._idle_one() or self._remote.lease()
            with self._lock:
                self._busy.add(lease)
            return lease
        except BaseException:
            self._free.release()
            raise

    def _idle_one(self) -> Lease | None:
        """An idle instance. One that has ended meanwhile, with its platform or by a limit, is not
        used: the rows of the next call are not lost with it."""
        while True:
            with self._lock:
                if self._closed:
                    raise make("SM-0113", f"the calls of `{self._name}` are cancelled")
                if not self._idle:
                    return None
                lease = self._idle.pop()[0]
            if lease.is_idle():
                return lease
            lease.end()

    def _put(self, lease: Lease) -> None:
        with self._lock:
            self._busy.discard(lease)
            is_old = time.monotonic() - lease.since > self._used_seconds
            is_kept = not self._closed and not is_old
            if is_kept:
                self._idle.append((lease, time.monotonic()))
                self._return_later()
        self._free.release()
        if not is_kept:
            self._prints.show(lease.give_back())

    def _drop(self, lease: Lease) -> None:
        lease.end()
        with self._lock:
            self._busy.discard(lease)
        self._free.release()

    def _return_later(self) -> None:
        """Under the lock."""
        if self._returning is None:
            self._returning = threading.Timer(_LEASED_SECONDS, self._return_idle)
            self._returning.daemon = True
            self._returning.start()

    def _return_idle(self) -> None:
        """Gives back what was not used for some time."""
        old = time.monotonic() - _LEASED_SECONDS
        with self._lock:
            returned = [lease for lease, since in self._idle if since <= old]
            self._idle[:] = [(lease, since) for lease, since in self._idle if since > old]
            self._returning = None
            if self._idle:
                self._return_later()
            is_over = not self._idle and not self._busy
        for lease in returned:
            self._prints.show(lease.give_back())
        if is_over:
            self._prints.begin()

    def _end_busy(self) -> None:
        with self._lock:
            busy = list(self._busy)
        for lease in busy:
            lease.interrupt()

    def busy(self) -> int:
        with self._lock:
            return len(self._busy)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle[:] = [lease for lease, _ in self._idle], []
            threads, self._threads = self._threads, None
        self._end_busy()
        for lease in idle:
            self._prints.show(lease.give_back())
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


def _is_worth_another(lost: Lost) -> bool:
    """Whether another instance may succeed: not if the function needs too much time or memory."""
    return lost.error.code in ("SM-0210", "SM-0211", "SM-0507") or lost.error.retryable


def _give_all_back(
    idle: list[tuple[Lease, float]], lock: threading.Lock, process: int, prints: Printed
) -> None:
    if process != os.getpid():
        return
    with lock:
        leases = [lease for lease, _ in idle]
        idle.clear()
    for lease in leases:
        prints.show(lease.give_back())


def _forget_after_fork() -> None:
    """Closes the copies of the parent's connections: its instances end with the parent alone."""
    for pool in list(_pools):
        for lease in [*pool._busy, *(lease for lease, _ in pool._idle)]:
            lease.end()
    _pools.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
