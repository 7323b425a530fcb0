"""The errors that users see: the platform's `ErrorReport` as Python exceptions.

Invariant: `str(error)` is the same text that the command line shows.
"""

from __future__ import annotations

import functools
import os
import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Error(Exception):
    """The base class of all errors. `report` is the complete report, as JSON-like data."""

    def __init__(self, report: dict[str, Any] | str) -> None:
        # An engine that runs a function may raise its error again, made from the text alone.
        report = _of_text(report) if isinstance(report, str) else report
        super().__init__(report.get("message", ""))
        self.report = report

    @property
    def code(self) -> str:
        """The stable code, `SM-` and four digits; docs/reference/errors.md explains each."""
        return str(self.report.get("code", "SM-0901"))

    @property
    def message(self) -> str:
        """One line that says what failed."""
        return str(self.report.get("message", ""))

    @property
    def hint(self) -> str | None:
        """What to do about it."""
        return self.report.get("hint")

    @property
    def query_id(self) -> str | None:
        """The query that failed."""
        return self.report.get("query_id")

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later: the platform failed, not the input."""
        return bool(self.report.get("retryable", False))

    def __str__(self) -> str:
        return render(self.report)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report,)

    def _render_traceback_(self) -> list[str]:
        """The traceback in a notebook (IPython calls this): the caller's lines and the report."""
        frames = [
            frame
            for frame, (inner, _) in zip(
                traceback.extract_tb(self.__traceback__), traceback.walk_tb(self.__traceback__)
            )
            if str(inner.f_globals.get("__name__")).partition(".")[0] not in _HIDDEN_PACKAGES
        ]
        lines = "".join(traceback.format_list(frames)).splitlines()
        return [*lines, *str(self).splitlines()]


def _of_text(text: str) -> dict[str, Any]:
    """The report in `str(error)`, as far as its text has it."""
    code = re.search(r"error\[(SM-\d{4})\]: ", text)
    if code is None:
        return {"code": "SM-0901", "message": text}
    return {"code": code[1], "message": text[code.end() :]}


# Packages whose frames are not part of the user's code.
_HIDDEN_PACKAGES = {"snowmelt", "IPython", "ipykernel"}


class QueryError(Error):
    """The SQL, its tables or its options are wrong, or it was too slow or large (SM-01xx)."""


class FunctionError(Error):
    """The user's function failed (SM-02xx)."""


class PackageError(Error):
    """Packages cannot be resolved or unpacked (SM-03xx)."""


class PlatformError(Error):
    """The platform failed (SM-04xx to SM-10xx)."""


class SignatureError(FunctionError):
    """A function's annotations do not give a schema (SM-0205)."""

    def __init__(self, report: dict[str, Any] | str) -> None:
        super().__init__(report)
        self.function = str(self.report.get("function", ""))
        self.reason = str(self.report.get("reason", self.message))


class MapError(FunctionError):
    """Some items of `map` failed. `errors` has (index, exception) for each. `results` has the
    results of the other items, in order, with None for failed items."""

    def __init__(
        self,
        report: dict[str, Any] | str,
        errors: Sequence[tuple[int, Exception]] = (),
        results: Sequence[Any] = (),
    ) -> None:
        super().__init__(report)
        self.errors = list(errors)
        self.results = list(results)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report, self.errors, self.results)


_BY_RANGE = {"01": QueryError, "02": FunctionError, "03": PackageError}


def from_report(report: dict[str, Any]) -> Error:
    """The exception for a report, by the range of its code."""
    code = str(report.get("code", ""))
    if code == "SM-0205":
        return SignatureError(report)
    return _BY_RANGE.get(code[3:5], PlatformError)(report)


_FAILURES = {
    "raised": ("SM-0201", "`{}` raised {}"),
    "type": ("SM-0202", "`{}` returned the wrong type: {}"),
    "length": ("SM-0203", "`{}` returned the wrong number of values: {}"),
    "load": ("SM-0204", "`{}` cannot be loaded: {}"),
    "signature": ("SM-0205", "`{}` has no usable signature: {}"),
    "setup": ("SM-0207", "the set-up of `{}` failed: {}"),
    "size": ("SM-0225", "`{}` gave too much: {}"),
}


def from_failure(failure: dict[str, Any], first_row: int = 0) -> Error:
    """The exception for a `FunctionFailure` that the platform does not decode: one of the results
    of `map`, or of a batch of an engine, whose first row has the number `first_row`."""
    name, kind, calls = failure["function"], failure["kind"], failure.get("calls") or 0
    code, message = _FAILURES.get(kind, _FAILURES["raised"])
    message = message.format(name, failure["exception"])
    if kind == "raised" and calls > 1:
        message = f"`{name}` failed in {failure.get('failed', 1)} of {calls} calls"
    given, row = failure.get("input"), failure.get("row")
    if given is not None and row is not None:
        given = f"{given} (row {row + first_row} of its batch)"
    return make(
        code,
        message,
        location=failure.get("location"),
        excerpt=failure.get("traceback"),
        input=given,
        hint=failure.get("hint"),
    )


def hide_internal_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Removes the frames of this package from the traceback of an `Error` that a function of the
    API raises."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except Error as error:
            raise error.with_traceback(None) from error.__cause__

    return call


def make(code: str, message: str, **more: Any) -> Error:
    """An error that this package itself detected."""
    found = {name: value for name, value in more.items() if value is not None}
    return from_report({"code": code, "message": message, **found})


def render(report: dict[str, Any]) -> str:
    """A report as the command line prints it."""
    lines = [f"error[{report.get('code', 'SM-0901')}]: {report.get('message', '')}"]
    if location := report.get("location"):
        position = f"{_short_path(location['file'])}:{location['line']}"
        within = f" in {location['within']}" if location.get("within") else ""
        lines.append(f"  --> {position}{within}")
    lines += [f"   |  {line}" for line in report.get("excerpt") or []]
    if report.get("input"):
        lines.append(f"input: {report['input']}")
    if report.get("hint"):
        lines.append(f"hint: {report['hint']}")
    return "\n".join(lines)


def _short_path(file: str) -> str:
    here = os.path.join(os.getcwd(), "")
    return file[len(here) :] if file.startswith(here) else file
