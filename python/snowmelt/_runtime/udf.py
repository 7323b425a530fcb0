"""The dialogue of a UDF: schemas first, then one answer per batch.

Invariant: every batch gets exactly one answer, a column of as many rows or a failure; no value is
turned into null unless the user asked for it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

from .._signature import Signature
from .._udf import AnyUdf, Udf
from . import code, failure, frames, limits, process
from .failure import Failed
from .frames import Connection, ProtocolError
from .function import too_long

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
    result_schema = pa.schema([pa.field("return", signature.returns.arrow_type(), True)])
    announced = False
    while (frame := connection.receive()) is not None and frame[0] != frames.END:
        try:
            column = _answer(pa, frame, arguments, evaluate, signature.name)
        except Failed as failed:
            process.flush()
            failed.message["function"] = failed.message["function"] or signature.name
            connection.send_json(frames.FAILURE, failed.message)
            continue
        process.flush()
        if not announced:
            connection.send(frames.SCHEMA, result_schema.serialize())
            announced = True
        batch = pa.RecordBatch.from_arrays([column], schema=result_schema)
        try:
            connection.send(frames.BATCH, batch.serialize())
        except frames.TooLong as error:
            connection.send_json(frames.FAILURE, too_long(signature.name, error).message)


def _answer(
    pa: Any, frame: tuple[int, frames.Payload], arguments: Any, evaluate: Evaluate, name: str
) -> Any:
    if frame[0] != frames.BATCH:
        raise ProtocolError(f"expected a batch, received a frame of kind {frame[0]}")
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(frame[1]), arguments)
    except pa.ArrowException as error:
        raise ProtocolError(f"a batch cannot be read: {error}") from None
    try:
        return evaluate(batch)
    except Failed:
        raise
    except Exception as error:
        # An unforeseen error still gets an answer, so that the query ends.
        raise failure.from_exception(error, "type", name) from None


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
    found = {id(value): value for value in names.values() if isinstance(value, Udf)}
    try:
        return json.dumps([udf.signature.to_wire() for udf in found.values()])
    except ImportError as error:
        raise failure.from_exception(error, "load", "") from None
