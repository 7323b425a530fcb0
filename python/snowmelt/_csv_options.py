"""Options for the CSV files of a query, in the form of the wire: a name with texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import Error, make


def to_wire(options: Any) -> list[dict[str, Any]]:
    """The wire form of `csv=`. The platform checks names and values. Raises `Error`."""
    if not isinstance(options, Mapping):
        message = f"csv= is a dictionary of options, not a {type(options).__name__}"
        hint = "write csv={'delim': ';'}; give a table another name than csv"
        raise make("SM-0110", message, hint=hint)
    return [_option(name, value) for name, value in options.items()]


def _option(name: Any, value: Any) -> dict[str, Any]:
    if not isinstance(name, str):
        raise _wrong(name, value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise _wrong(name, value)
        values = [_text(name, each) for each in value.values()]
        return {"name": name, "keys": list(value), "values": values}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return {"name": name, "values": [_text(name, each) for each in value]}
    return {"name": name, "values": [_text(name, value)]}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return value
    if value is None:  # No character, as for quote.
        return ""
    raise _wrong(name, value)


def _wrong(name: Any, value: Any) -> Error:
    message = f"csv= has {name!r} with a {type(value).__name__}"
    hint = "give a name a text, a number, True, False, a list or a dictionary of columns"
    return make("SM-0110", message, hint=hint)
