"""The dialogue of an aggregate function: rows and states come in, states and results go out
(`crates/wire/src/functions/aggregate.rs`).

Invariant: every call gets exactly one answer. What was taken from an accumulator is gone from it.
"""

from __future__ import annotations

import importlib
import json
import resource
from typing import Any

from .._aggregate import Aggregate
from . import code, failure, frames, limits, process
from .failure import Failed
from .frames import Connection, ProtocolError
from .function import too_long

# Of the states in one answer, which is in memory several times.
_MAX_BYTES = 16 << 20


def load(load: dict[str, Any]) -> Aggregate:
    """The aggregate function that a `Load` message names. Raises `Failed`."""
    limits.of_udf()
    name = load["function"]
    found = code.load(load["code"], name).callable(name)
    if not isinstance(found, Aggregate):
        raise Failed("load", f"`{name}` is not a class with @sm.aggregate", function=name)
    form = found.signature.batch
    try:
        # Batches arrive as Arrow data; the packages of an image may lack pyarrow.
        importlib.import_module("pyarrow")
        if form in ("numpy", "pandas"):
            importlib.import_module(form)
    except ImportError as error:
        raise failure.from_exception(error, "load", name) from None
    return found


def serve(connection: Connection, function: Aggregate) -> None:
    """Answers calls until the other side ends."""
    import pyarrow as pa

    rows = _schema(connection.expect(frames.SCHEMA))
    _schema(connection.expect(frames.SCHEMA))
    wanted = len(function.signature.arguments) + 1
    if len(rows) != wanted:
        raise ProtocolError(f"{len(rows)} columns were received, and {wanted} are expected")
    states = pa.schema([("state", pa.large_binary()), ("", pa.uint64())])
    _Service(connection, function, {"update": rows, "merge": states}).answer_all()


class _Service:
    """The answers of one function on one connection."""

    def __init__(
        self, connection: Connection, function: Aggregate, schemas: dict[str, Any]
    ) -> None:
        from .aggregate_groups import Calls

        self._connection, self._schemas = connection, schemas
        self._name, self._calls = function.signature.name, Calls(function)
        self._accumulators: dict[int, list[Any]] = {}
        self._unused = _resident_bytes()

    def answer_all(self) -> None:
        while (frame := self._connection.receive()) is not None and frame[0] != frames.END:
            if frame[0] != frames.AGGREGATE:
                raise ProtocolError(f"expected a call, received a frame of kind {frame[0]}")
            for kind, payload in self._answer(json.loads(frame[1])):
                self._connection.send(kind, payload)

    def _answer(self, call: dict[str, Any]) -> list[tuple[int, Any]]:
        """The frames of the answer."""
        states = self._states(call)
        schema = self._schemas.get(call["step"])
        batch = None if schema is None else self._batch(schema)
        try:
            if batch is None:
                return self._taken(call, states)
            add = self._calls.update if call["step"] == "update" else self._calls.merge
            add(states, batch)
            done = {"bytes": self._bytes(len(states))}
            return [(frames.AGGREGATE, json.dumps(done).encode())]
        except Failed as failed:
            failed.message["function"] = failed.message["function"] or self._name
            return [_failure(failed)]
        except Exception as error:
            # An unforeseen error still gets an answer, so that the query ends.
            return [_failure(failure.from_exception(error, "type", self._name))]
        finally:
            process.flush()

    def _states(self, call: dict[str, Any]) -> list[Any]:
        """The states of the accumulator; None for groups without rows."""
        for gone in call["forget"]:
            self._accumulators.pop(gone, None)
        if not any(self._accumulators.values()):
            self._unused = _resident_bytes()
        states = self._accumulators.setdefault(call["accumulator"], [])
        states.extend([None] * (call["groups"] - len(states)))
        return states

    def _batch(self, schema: Any) -> Any:
        import pyarrow as pa

        payload = self._connection.expect(frames.BATCH)
        try:
            return pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        except pa.ArrowException as error:
            raise ProtocolError(f"a batch cannot be read: {error}") from None

    def _taken(self, call: dict[str, Any], states: list[Any]) -> list[tuple[int, Any]]:
        import pyarrow as pa

        first = states[: call["take"]]
        if call["step"] == "state":
            column = self._calls.states(first, _MAX_BYTES)
        else:
            column = self._calls.results(first)
        schema = pa.schema([pa.field("return", column.type, True)])
        payload = pa.RecordBatch.from_arrays([column], schema=schema).serialize()
        if payload.size > frames.MAX_PAYLOAD_BYTES:
            most = frames.MAX_PAYLOAD_BYTES
            raise too_long(self._name, f"{payload.size:,} bytes, and {most:,} are the most")
        del states[: len(column)]
        return [(frames.SCHEMA, schema.serialize()), (frames.BATCH, payload)]

    def _bytes(self, groups: int) -> int:
        """An estimate of the memory of the states of so many groups: their share of what the
        process has grown by since it had none."""
        grown = max(_resident_bytes() - self._unused, 0)
        every = sum(map(len, self._accumulators.values()))
        return grown * groups // max(every, 1)


def _failure(failed: Failed) -> tuple[int, bytes]:
    return frames.FAILURE, json.dumps(failed.message).encode()


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        # At its limit of open files, for example. The peak is known without a file.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _schema(payload: frames.Payload) -> Any:
    import pyarrow as pa

    try:
        return pa.ipc.read_schema(pa.py_buffer(payload))
    except pa.ArrowException as error:
        raise ProtocolError(f"a schema cannot be read: {error}") from None
