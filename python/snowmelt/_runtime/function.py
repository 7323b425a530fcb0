"""Calls `handler(event)` with JSON values, and `f(item)` over pickled items for `sm.map`.

Invariant: each `Call` frame gets exactly one answer, and the user's output is written before it.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable
from typing import Any

from . import awaited, failure, frames, plain, process
from .failure import Failed
from .frames import Connection
from .plain import NotPlain

Handler = Callable[[Any], Any]

# `json.loads` and `json.dumps` would make or look these up at every call.
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(allow_nan=False).encode


def serve(connection: Connection, handler: Handler, name: str, answer: Callable[..., str]) -> None:
    """Answers calls until the other side ends; `answer` is `event_answer` or `map_answer`."""
    while (frame := connection.receive()) is not None and frame[0] != frames.END:
        if frame[0] != frames.CALL:
            raise frames.ProtocolError(f"expected a call, received a frame of kind {frame[0]}")
        call, _ = _decode(frame[1].decode())
        try:
            kind, text = frames.RETURN, answer(handler, name, call["event"])
        except Failed as failed:
            kind, text = frames.FAILURE, json.dumps(failed.message)
        process.flush()
        try:
            connection.send(kind, frames.answer(text) if kind == frames.RETURN else text.encode())
        except frames.TooLong as error:
            connection.send_json(frames.FAILURE, too_long(name, error).message)


def too_long(name: str, error: object) -> Failed:
    """The failure for an answer that no frame can hold."""
    hint = "return a smaller answer, or write it to storage and return its location"
    return Failed("type", f"its answer has {error}", function=name, hint=hint)


def event_answer(handler: Handler, name: str, event: Any) -> str:
    """The handler's value as JSON."""
    try:
        with process.user_code:
            value = awaited.value(handler(event))
    except BaseException as error:
        given = failure.shown("event", event)
        raise failure.from_exception(
            error, "raised", name, input=given, failed=1, calls=1
        ) from None
    return _as_json(value, name)


def _as_json(value: Any, name: str) -> str:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(value).__name__
        hint = "return None, bool, int, float, str, list or dict"
        reason = f"{failure.shown('value', value)} ({kind}) is not JSON: {error}"
        raise Failed("type", reason, function=name, hint=hint) from None


def map_answer(handler: Handler, name: str, event: dict[str, Any]) -> str:
    """`{"results": text}`: for each item in order (true, value) or (false, failure), as plain data
    or as a pickle, as the event requests (`docs/reference/python.md`). For clients that read
    neither, `"failed"` has the message of the first failure, if any.
    """
    try:
        items = pickle.loads(base64.b64decode(event["items"]))
    except Exception as error:
        raise failure.from_exception(error, "load", name) from None
    write, join = _FORMS[event["results"]]
    results = [_one(handler, name, item, write) for item in items]
    answer = {"results": join(results)}
    failed = next((why for succeeded, why in results if not succeeded), None)
    if failed is not None:
        answer["failed"] = failed["exception"]
    return json.dumps(answer)


def _one(handler: Handler, name: str, item: Any, write: Callable[[Any], Any]) -> tuple[bool, Any]:
    try:
        with process.user_code:
            value = awaited.value(handler(item))
    except BaseException as error:
        given = failure.shown("item", item)
        failed = failure.from_exception(error, "raised", name, input=given, failed=1, calls=1)
        return False, {**failed.message, "own": _exception(error, write)}
    try:
        return True, write(value)
    except NotPlain as error:
        failed = Failed("type", f"its result cannot be sent: {error}", function=name, hint=_HINT)
    except Exception as error:
        reason = f"{type(value).__name__} cannot be pickled: {failure.exception_line(error)}"
        failed = Failed("type", reason, function=name)
    return False, {**failed.message, "own": None}


_HINT = (
    "return plain data (numbers, texts, lists, dicts, dates, arrays, frames), or trust what the "
    'function sends with results="pickle"'
)


def _pickled(value: Any) -> bytes:
    from .._vendor import cloudpickle

    # By value, because classes of the user's own modules cannot be imported elsewhere.
    data: bytes = cloudpickle.dumps(value)
    return data


def _exception(error: BaseException, write: Callable[[Any], Any]) -> Any:
    """The exception itself, if it can be serialised; many cannot (their arguments are lost). As
    plain data, only Python's own exceptions, by name."""
    try:
        if write is plain.dumps:
            own = type(error).__module__ == "builtins"
            return plain.dumps([type(error).__name__, list(error.args)]) if own else None
        data = write(error)
        pickle.loads(data)
        return data
    except Exception:
        return None


# How each value is written, one by one so that an unreadable one affects no other, and the whole.
_FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[list[Any]], str]]] = {
    "plain": (plain.dumps, json.dumps),
    "pickle": (_pickled, lambda results: base64.b64encode(pickle.dumps(results)).decode()),
}
