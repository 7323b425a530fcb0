"""Secrets of functions: `secrets=` of the decorators, and `sm.secret`.

Invariant: only an instance has values. They are not in the pickle of a function, in what is sent to
register it, or in a failure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

# Brings the values to an instance, as JSON (`crates/node/src/process/secrets.rs`).
VARIABLE = "SNOWMELT_SECRET_VALUES"

# Shorter values, and lines of values, are not hidden: they are parts of many words.
_LEAST_HIDDEN = 4

# The values of this process's function, once it is known to be an instance.
_values: dict[str, str] | None = None

# References of functions of this process, for calls without a platform.
_declared: dict[str, str] = {}


def secret(name: str) -> str:
    """The value of a secret of the function.

    Where no platform runs the function, as in a unit test, a secret that is declared as
    `env:VARIABLE` is the variable of this process. Raises `Error`.
    """
    if _values is not None:
        found = _values.get(name)
    else:
        kind, _, variable = _declared.get(name, "").partition(":")
        found = os.environ.get(variable) if kind == "env" else None
    if found is None:
        from .errors import make

        raise make("SM-0231", f"the function has no secret {name}", hint=_hint(name))
    return found


def _hint(name: str) -> str:
    if _values is None and (reference := _declared.get(name)):
        return f"outside of the platform it is not known what {reference} leads to"
    return f'name where the server finds it: secrets={{"{name}": "env:{name}"}}, or --secret'


def enter(values: str | None) -> None:
    """Makes this process an instance, with these values as JSON."""
    global _values
    _values = {}
    if values is not None:
        import json

        _values = json.loads(values)


def declared(secrets: Any) -> dict[str, str]:
    """References by name. Raises `TypeError`, without the references: one of them may be a secret
    by mistake."""
    if not isinstance(secrets, Mapping):
        raise TypeError('secrets is a mapping: write secrets={"API_KEY": "env:API_KEY"}')
    for name, reference in secrets.items():
        is_text = isinstance(name, str) and isinstance(reference, str)
        if not is_text or not reference.startswith(("env:", "file:")):
            raise TypeError(f"the secret {name} is neither env:VARIABLE nor file:NAME")
    if _values is None:
        _declared.update(secrets)
    return dict(secrets)


def lacking(secrets: Mapping[str, str]) -> list[str]:
    """The declared secrets that this instance was not given."""
    return [name for name in secrets if name not in (_values or {})]


def hidden(text: Any) -> Any:
    """A text, or texts in lists and dictionaries, without the values of this instance."""
    if not _values:
        return text
    if isinstance(text, str):
        for part in _parts():
            text = text.replace(part, "***")
        return text
    if isinstance(text, (list, tuple)):
        return [hidden(each) for each in text]
    if isinstance(text, dict):
        return {key: hidden(value) for key, value in text.items()}
    return text


def _parts() -> list[str]:
    """Values, and their lines, the longest first: one may be a part of another."""
    parts: set[str] = set()
    for value in (_values or {}).values():
        # As `repr` shows them, too: failures have the arguments of calls.
        for form in (value, repr(value)[1:-1]):
            parts.update((form, *(line.strip() for line in form.splitlines())))
    return sorted((part for part in parts if len(part) >= _LEAST_HIDDEN), key=len, reverse=True)
