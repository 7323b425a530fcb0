"""One instance of a UDF, leased from a platform.

The protocol is that of `crates/api/src/leases.rs`: a connection to the platform for the lease, and
one to the instance. On one machine the platform passes the second one as a descriptor, so nothing
is between the engine and the function; a platform of another host relays it (`_link.py`), and so
does one whose cluster has the instance on another host.

Invariant: the end of this process ends the connections, and with them the instance. A lease whose
call did not end is never used for another one.
"""

from __future__ import annotations

import json
import time
from typing import Any

from . import _ipc, _transports
from ._link import link
from ._remote_server import RemoteServer
from ._runtime import frames
from ._runtime.codecs import Unfit
from ._runtime.frames import Closed, ProtocolError
from ._server import Server
from ._shared_memory import LEAST_BYTES, SharedMemory
from .errors import Error, from_failure, make


def message_bytes(batch: Any) -> int:
    """The bytes of a batch as a message. Unlike `nbytes` it is fast for many columns."""
    import pyarrow as pa

    return int(pa.ipc.get_record_batch_size(batch))


class Lost(Exception):
    """The instance has ended in the middle of a batch; `error` says why."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class Lease:
    """An instance on which the function is loaded. Used by one thread at a time."""

    def __init__(
        self,
        server: Server | RemoteServer,
        request: dict[str, Any],
        signature: Any,
        share_from: int | None = LEAST_BYTES,
        other: str | None = None,
        in_parts: bool = False,
    ) -> None:
        """Waits for the instance. `signature` is the schema of the arguments, then `return`.
        Batches of `share_from` bytes or more are passed in shared memory, once one is answered.
        With `other`, all batches are passed by that transport. With `in_parts`, an answer may be
        for the first rows of a batch: the others are sent again.

        Raises `Error`.
        """
        fields = list(signature)
        self._arguments, self._result = _schema(fields[:-1]), _schema(fields[-1:])
        self._name = str(next(iter(request["runs"].values()))["name"])
        self._link = link(server)
        try:
            self._timeout = self._link.ask(request)
        except BaseException:
            self._link.close()
            raise
        self.since = time.monotonic()
        self._instance = self._link.instance
        self._has_schema = False
        # `None` until a large batch was sent, and once the function keeps arguments.
        self._shared: SharedMemory | None = None
        self._share_from = share_from if self._link.shares_memory else None
        self._in_parts = in_parts
        self._other_name = other
        self._other: _transports.Transport | None = None
        try:
            self._instance.send(frames.SCHEMA, self._arguments.serialize())
            self._instance.send(frames.SCHEMA, self._result.serialize())
        except OSError:
            ended = self._ended()
            self.end()
            raise ended from None

    def is_idle(self) -> bool:
        """False once the platform or the instance has ended: then there is something to read."""
        return self._link.is_idle()

    def call(self, batch: Any, first_row: int = 0) -> Any:
        """The result of each row of a batch, as a `pyarrow.Array` of the declared type.
        `first_row` is the number of its first row for the engine, for errors.

        Raises `Error` if the function failed, after which the instance takes the next batch, and
        `Lost` if it has ended.
        """
        result = self._call(batch, first_row)
        if len(result) == batch.num_rows:
            return result
        import pyarrow as pa

        parts, done = [result], len(result)
        while done < batch.num_rows:
            parts.append(self._call(batch.slice(done), first_row + done))
            done += len(parts[-1])
        return pa.concat_arrays(parts)

    def _call(self, batch: Any, first_row: int) -> Any:
        """The result of each row, or with `in_parts` of the first ones."""
        self._deadline = time.monotonic() + self._timeout
        self._link.settimeout(self._timeout)
        try:
            if self._other_name is not None:
                return self._by_other(batch)
            self._send(batch)
            return self._answer(batch.num_rows, first_row)
        except _transports.Failure as failure:
            raise from_failure(failure.report, first_row) from None
        except Unfit as unfit:
            way = f"transport={self._other_name!r}"
            message = f"{way} cannot pass a batch to `{self._name}`: {unfit}"
            raise make("SM-0109", message) from None
        except frames.TooLong as error:
            raise make(
                "SM-0509",
                f"a batch for `{self._name}` is too long: {error}",
                hint="a row of this size does not fit into a message",
            ) from None
        except TimeoutError:
            raise Lost(self._timed_out()) from None
        except (OSError, Closed):
            raise Lost(self._ended()) from None
        except ProtocolError as error:
            message = f"the instance of `{self._name}` violated the protocol: {error}"
            raise Lost(make("SM-0507", message)) from None

    def _by_other(self, batch: Any) -> Any:
        if self._other is None:
            self._other = _transports.connect(
                self._other_name or "", self._instance, self._arguments, self._result
            )
        answer = self._other.call(batch, self._deadline)
        self._check_rows(answer.num_rows, batch.num_rows)
        return answer.column(0)

    def _send(self, batch: Any) -> None:
        is_large = self._share_from is not None and message_bytes(batch) >= self._share_from
        # The first answer shows that the instance has read all that was sent without descriptors.
        if is_large and self._shared is None and self._has_schema:
            self._share()
        written = self._shared.write(batch) if is_large and self._shared else None
        if written is not None:
            self._instance.send(frames.SHARED_BATCH, written)
        else:
            self._instance.send(frames.BATCH, batch.serialize())

    def _share(self) -> None:
        """Gives the instance memory for the next batches, if this process can have some."""
        try:
            memory = SharedMemory()
        except OSError:
            self._share_from = None
            return
        self._instance.send_with_descriptor(frames.SHARED, memory.offer, memory.descriptor)
        memory.sent()
        frame = self._receive()
        if frame[0] != frames.SHARED:
            raise ProtocolError("the instance did not take the shared memory")
        self._shared = memory

    def _answer(self, rows: int, first_row: int) -> Any:
        while True:
            kind, payload = self._receive()
            if kind == frames.FAILURE:
                raise from_failure(json.loads(payload), first_row)
            if kind == frames.SCHEMA and not self._has_schema:
                self._check_schema(payload)
                continue
            if kind == frames.SHARED_BATCH and self._shared is not None:
                payload, is_kept = self._shared.read(payload)
                if is_kept:
                    # The function has it now.
                    self._shared, self._share_from = None, None
                if not payload:
                    continue
            elif kind != frames.BATCH:
                raise ProtocolError(f"a frame of kind {kind} is not an answer")
            return self._column(payload, rows)

    def _column(self, payload: Any, rows: int) -> Any:
        import pyarrow as pa

        if not self._has_schema:
            raise ProtocolError("an answer came before its schema")
        try:
            # What the instance sends is not trusted.
            batch = _ipc.read_batch(payload, self._result)
        except (pa.ArrowException, OSError, ValueError, EOFError) as error:
            raise ProtocolError(f"its answer has invalid Arrow data: {error}") from None
        self._check_rows(batch.num_rows, rows)
        return batch.column(0)

    def _check_rows(self, found: int, wanted: int) -> None:
        is_right = 0 < found <= wanted if self._in_parts else found == wanted
        if not is_right:
            message = f"`{self._name}` returned {found} values for {wanted} rows"
            raise make("SM-0203", message)

    def _receive(self) -> tuple[int, frames.Payload]:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._link.settimeout(left)
        frame = self._instance.receive()
        if frame is None:
            raise Closed("the instance closed the connection")
        return frame

    def _check_schema(self, payload: frames.Payload) -> None:
        import pyarrow as pa

        try:
            schema = pa.ipc.read_schema(pa.py_buffer(payload))
        except (pa.ArrowException, OSError, ValueError, EOFError) as error:
            raise ProtocolError(f"its schema cannot be read: {error}") from None
        found, wanted = schema.types, self._result.types
        if found != wanted:
            text = ", ".join(map(str, found))
            raise make("SM-0202", f"`{self._name}` returned {text} where {wanted[0]} is declared")
        self._has_schema = True

    def _timed_out(self) -> Error:
        return make(
            "SM-0212",
            f"`{self._name}` did not answer within {self._timeout:g} s",
            hint='give it more time with @sm.udf(timeout="5m")',
        )

    def _ended(self) -> Error:
        """Why the instance has ended: the platform knows the limit, the signal or the exit code."""
        why = self._link.why_ended()
        return why or make("SM-0210", f"`{self._name}` ended in the middle of a batch")

    def give_back(self) -> str:
        """Returns the instance to the platform, which pauses it and keeps it for some time. Gives
        what it has printed meanwhile."""
        try:
            return self._link.give_back()
        except (OSError, ProtocolError):
            return ""  # It is gone, and so is the lease.
        finally:
            self.end()

    def interrupt(self) -> None:
        """Ends a call that another thread has under way, and with it the instance."""
        self._link.interrupt()

    def end(self) -> None:
        """Ends the lease. An instance that was not given back is destroyed."""
        if self._other is not None:
            self._other.close()
        self._link.close()


def _schema(fields: list[Any]) -> Any:
    import pyarrow as pa

    return pa.schema(fields)
