"""The outcomes of the items of `sm.map` and `sm.burst`: items are pickled, results are decoded in
the form that the caller chose.

Boundary: data from a sandbox is assumed to be hostile. Invariant: it is unpickled only if the
caller chose `results="pickle"`, independent of its content.
"""

from __future__ import annotations

import base64
import builtins
import json
import pickle
from collections.abc import Sequence
from typing import Any

from . import _plain
from ._vendor import cloudpickle
from .errors import Error, MapError, from_failure, make

FORMS = ("plain", "pickle")

# Whether it succeeded, and the value or the exception.
Outcome = tuple[bool, Any]


def check(on_error: str, results: str) -> None:
    """Refuses invalid options."""
    if on_error not in ("raise", "return"):
        raise TypeError(f"on_error={on_error!r} is neither 'raise' nor 'return'")
    if results not in FORMS:
        raise TypeError(f"results={results!r} is neither 'plain' nor 'pickle'")


def event(items: Sequence[Any], results: str) -> dict[str, str]:
    """The event that requests the results of some items."""
    return {"items": base64.b64encode(cloudpickle.dumps(items)).decode(), "results": results}


def read(answer: Any, count: int, results: str) -> list[Outcome]:
    """The outcomes of `count` items. Raises `Error` for an invalid answer."""
    try:
        text = answer["results"]
        sent = pickle.loads(base64.b64decode(text)) if results == "pickle" else json.loads(text)
        pairs = [(succeeded, value) for succeeded, value in sent]
    except Exception as error:
        raise make("SM-0507", f"the results cannot be read: {_line(error)}") from None
    if len(pairs) != count:
        raise make("SM-0507", f"received {len(pairs)} results for {count} items")
    return [_outcome(succeeded, value, results) for succeeded, value in pairs]


def _outcome(succeeded: Any, value: Any, results: str) -> Outcome:
    if succeeded is not True:
        return False, _exception(value, results)
    try:
        return True, _value(value, results)
    except Exception as error:
        return False, make("SM-0202", f"a result cannot be decoded: {_line(error)}")


def _value(sent: Any, results: str) -> Any:
    if results == "pickle":
        return pickle.loads(sent)
    return _plain.decode(json.loads(sent))


def _exception(failed: Any, results: str) -> Exception:
    """The user's own exception if it could be sent, with the platform's report as its cause."""
    try:
        report = from_failure(failed)
        str(report)
    except Exception as error:
        return make("SM-0507", f"a failure cannot be decoded: {_line(error)}")
    try:
        own = _own(failed["own"], results)
    except Exception:
        return report
    if not isinstance(own, Exception):
        return report
    own.__cause__ = report
    return own


def _own(sent: Any, results: str) -> Any:
    if sent is None or results == "pickle":
        return sent and pickle.loads(sent)
    name, arguments = _plain.decode(json.loads(sent))
    kind = getattr(builtins, name)
    # A built-in exception: constructing it runs no other code.
    is_exception = isinstance(kind, type) and issubclass(kind, Exception)
    return kind(*arguments) if is_exception else None


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def gather(outcomes: list[Outcome], on_error: str) -> tuple[list[Any], list[tuple[int, Exception]]]:
    """Values in order, and (index, exception) of the failed items."""
    errors = [(index, value) for index, (succeeded, value) in enumerate(outcomes) if not succeeded]
    if not errors or on_error == "return":
        return [value for _, value in outcomes], []
    return [value if succeeded else None for succeeded, value in outcomes], errors


def map_error(errors: list[tuple[int, Exception]], results: list[Any], name: str) -> MapError:
    """The error for failed items, with the report of the first of them."""
    index, first = errors[0]
    known = first if isinstance(first, Error) else first.__cause__
    report: dict[str, Any] = {"excerpt": [repr(first)]}
    if isinstance(known, Error):
        report = dict(known.report)
    report.setdefault("code", "SM-0201")
    report["message"] = (
        f"`{name}` failed for {len(errors)} of {len(results)} items, first for item {index}"
    )
    report.setdefault("hint", 'get the others\' results with on_error="return"')
    return MapError(report, errors, results)
