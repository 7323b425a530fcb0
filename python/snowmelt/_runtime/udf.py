"""The dialogue of a UDF: schemas first, then one answer per batch.

Invariant: every batch gets exactly one answer, a column of as many rows or a failure; no value is
turned into null unless the user asked for it. Only the answer of a table function may be for the
first rows of the batch (`table.py`).
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from typing import Any

from .. import _files, _secrets
from .._aggregate import Aggregate
from .._signature import Signature
from .._udf import AnyUdf, Udf
from . import code, failure, frames, limits, process
from .failure import Failed
from .frames import Connection, ProtocolError
from .function import too_long
from .shared import KEPT, RANGE, SIZES, Shared

Evaluate = Callable[[Any], Any]


def load(load: dict[str, Any]) -> tuple[Evaluate, Signature]:
    """The function that a `Load` message names, ready for batches. Raises `Failed`."""
    limits.of_udf()
    name = load["function"]
    found = code.load(load["code"], name).callable(name)
    if not isinstance(found, Udf):
        found = _undecorated(found, name, load.get("batch"))
    try:
        # Batches arrive as Arrow data; the packages of an image may lack pyarrow.
        importlib.import_module("pyarrow")
        evaluate = evaluator(found.function, found.signature, load.get("on_error", "raise"))
    except ImportError as error:
        raise failure.from_exception(error, "load", name) from None
    return evaluate, found.signature


def evaluator(function: Callable[..., Any], signature: Signature, on_error: str) -> Evaluate:
    """A callable that answers batches. Raises `ImportError` if a library is missing."""
    if signature.kind == "table":
        from .table import Table

        return Table(function, signature)
    if signature.batch == "scalar":
        from .scalar import Scalar

        return Scalar(function, signature, on_error)
    from .vectorised import Vectorised

    importlib.import_module({"arrow": "pyarrow"}.get(signature.batch, signature.batch))
    return Vectorised(function, signature)


def _undecorated(function: Any, name: str, batch: str | None) -> AnyUdf:
    from .. import _signature
    from ..errors import SignatureError

    try:
        return Udf(function, _signature.read(function, name=name, batch=batch))
    except SignatureError as error:
        raise code.signature_failed(error, name) from None


def serve(connection: Connection, evaluate: Evaluate, signature: Signature) -> None:
    """Answers batches until the other side ends."""
    import pyarrow as pa

    arguments = _schema(pa, connection.expect(frames.SCHEMA))
    _schema(pa, connection.expect(frames.SCHEMA))
    if len(arguments) != len(signature.arguments):
        found, wanted = len(arguments), len(signature.arguments)
        raise ProtocolError(f"{found} argument columns were received for {wanted} parameters")
    _Service(connection, evaluate, signature, arguments).answer_all()


class _Service:
    """The answers of one function on one connection."""

    def __init__(
        self, connection: Connection, evaluate: Evaluate, signature: Signature, arguments: Any
    ) -> None:
        import pyarrow as pa

        self._connection, self._evaluate, self._name = connection, evaluate, signature.name
        self._arguments = arguments
        self._result = pa.schema([pa.field("return", signature.returns.arrow_type(), True)])
        self._announced = False
        self._shared: Shared | None = None

    def answer_all(self) -> None:
        while (frame := self._connection.receive_with_descriptor()) is not None:
            kind, payload, descriptor = frame
            if kind == frames.END:
                return
            if kind == frames.SHARED:
                self._share(payload, descriptor)
            elif kind == frames.SHARED_BATCH:
                self._answer_shared(payload)
            elif kind == frames.BATCH:
                self._send(self._answer(memoryview(payload)))
            elif kind == frames.TRANSPORT:
                self._serve_by_transport(payload)
            else:
                raise ProtocolError(f"expected a batch, received a frame of kind {kind}")

    def _share(self, payload: frames.Payload, descriptor: int | None) -> None:
        if descriptor is None:
            raise ProtocolError("shared memory was offered without a descriptor")
        try:
            self._shared = Shared(descriptor, *SIZES.unpack(payload))
        finally:
            os.close(descriptor)
        self._connection.send(frames.SHARED, b"")

    def _serve_by_transport(self, payload: frames.Payload) -> None:
        """Answers the batches of another transport until it ends."""
        from . import transports

        name = json.loads(payload)["transport"]
        try:
            transports.load(name)
        except ImportError as error:
            self._send(failure.from_exception(error, "load", self._name))
            return
        self._connection.send(frames.TRANSPORT, b"")
        frame = self._connection.receive_with_descriptor()
        if frame is None:
            return
        kind, _, descriptor = frame
        if kind != frames.TRANSPORT or descriptor is None:
            raise ProtocolError("a transport was named without a descriptor")
        called = transports.Function(self._name, self._arguments, self._result, self._evaluated)
        transports.serve(name, self._connection, descriptor, called)

    def _answer_shared(self, payload: frames.Payload) -> None:
        if self._shared is None:
            raise ProtocolError("a batch is in memory that was not offered")
        offset, length, _ = RANGE.unpack(payload)
        view = self._shared.arguments.read(offset, length)
        answer = self._answer(view)
        fits = None if isinstance(answer, Failed) else self._shared.results.write(answer)
        # The result may refer to the arguments.
        other = None if fits else _frame(answer, self._name)
        del answer
        flags = 0 if _is_released(view) else KEPT
        self._announce()
        if fits or flags:
            self._connection.send(frames.SHARED_BATCH, RANGE.pack(*(fits or (0, 0)), flags))
        if other:
            self._connection.send(*other)

    def _answer(self, view: memoryview) -> Any:
        """The record batch with the result, or why there is none."""
        import pyarrow as pa

        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(view), self._arguments)
        except pa.ArrowException as error:
            raise ProtocolError(f"a batch cannot be read: {error}") from None
        return self._evaluated(batch)

    def _evaluated(self, batch: Any) -> Any:
        """The record batch with the result of one, or why there is none."""
        import pyarrow as pa

        try:
            column = self._evaluate(batch)
        except Failed as failed:
            failed.message["function"] = failed.message["function"] or self._name
            # Without the frames that refer to the batch.
            return failed.with_traceback(None)
        except Exception as error:
            # An unforeseen error still gets an answer, so that the query ends.
            return failure.from_exception(error, "type", self._name)
        finally:
            process.flush()
        return pa.RecordBatch.from_arrays([column], schema=self._result)

    def _announce(self) -> None:
        if not self._announced:
            self._connection.send(frames.SCHEMA, self._result.serialize())
            self._announced = True

    def _send(self, answer: Any) -> None:
        if not isinstance(answer, Failed):
            self._announce()
        self._connection.send(*_frame(answer, self._name))


def _frame(answer: Any, name: str) -> tuple[int, Any]:
    """Kind and payload of an answer."""
    if not isinstance(answer, Failed):
        payload, most = answer.serialize(), frames.MAX_PAYLOAD_BYTES
        if payload.size <= most:
            return frames.BATCH, payload
        answer = too_long(name, f"{payload.size:,} bytes, and {most:,} are the most")
    return frames.FAILURE, json.dumps(answer.message).encode()


def _is_released(view: memoryview) -> bool:
    """Whether nothing refers to the arguments of the last call any more."""
    try:
        view.release()
    except BufferError:
        return False
    return True


def _schema(pa: Any, payload: frames.Payload) -> Any:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(payload))
    except pa.ArrowException as error:
        raise ProtocolError(f"a schema cannot be read: {error}") from None
    if any(pa.types.is_dictionary(field.type) for field in schema):
        raise ProtocolError("dictionary columns cannot be arguments of functions")
    return schema


def describe(load: dict[str, Any]) -> str:
    """JSON list of the signatures of all UDFs that the code defines. Raises `Failed`."""
    names = code.load(load["code"], "").names
    ours = (Udf, Aggregate)
    found = {id(value): value for value in names.values() if isinstance(value, ours)}
    for udf in found.values():
        _check_given(udf)
    try:
        return json.dumps([udf.signature.to_wire() for udf in found.values()])
    except ImportError as error:
        raise failure.from_exception(error, "load", "") from None


def _check_given(udf: AnyUdf | Aggregate) -> None:
    """Refuses a function that declares files or secrets that did not come with its code."""
    name = udf.signature.name
    for what, option, lacking in (
        ("file", "--file", _files.lacking(udf.given.files)),
        ("secret", "--secret", _secrets.lacking(udf.given.secrets)),
    ):
        if lacking:
            raise Failed(
                "load",
                f"it declares the {what} {lacking[0]}, which did not come with the code",
                function=name,
                hint=f"name it where the code is sent: snowmelt udf add {option}",
            )
