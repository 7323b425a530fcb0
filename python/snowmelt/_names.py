"""Names in a SQL text that may be the caller's variables: functions, and frames after FROM.

Invariant: these are only candidates; a name is used if the caller has a UDF or a frame of that
name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from types import FrameType
from typing import Any

from ._aggregate import Aggregate
from ._tables import is_frame
from ._udf import AnyUdf, Udf
from .errors import make

# String literals and comments, which contain no names.
_OPAQUE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINES = re.compile(r"\s*(?:create|drop)\b", re.IGNORECASE)
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_READ = re.compile(r"\b(?:from|join)\s+([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)", re.IGNORECASE)


def defines(sql: str) -> bool:
    """Whether the text may define a function: it begins like that."""
    return _DEFINES.match(_OPAQUE.sub(" ", sql)) is not None


def called_udfs(sql: str, caller: FrameType) -> list[AnyUdf | Aggregate]:
    """The caller's UDFs that the text calls, without duplicates."""
    names = _CALLED.findall(_OPAQUE.sub(" ", sql))
    values = [_lookup(caller, name) for name in names]
    found = {id(value): value for value in values if isinstance(value, (Udf, Aggregate))}
    return list(found.values())


def read_frames(sql: str, caller: FrameType, known: set[str]) -> dict[str, Any]:
    """The caller's frames that the text reads, except names that are already tables."""
    lists = _READ.findall(_OPAQUE.sub(" ", sql))
    names = [name.strip() for text in lists for name in text.split(",")]
    candidates = {name: _lookup(caller, name) for name in names if name not in known}
    return {name: value for name, value in candidates.items() if is_frame(value)}


def refuse_unread(sql: str, tables: Iterable[str], options: Iterable[str]) -> None:
    """Raises `QueryError` for a table that the text does not use: most are misspelt options."""
    text = _OPAQUE.sub(" ", sql)
    for table in tables:
        if re.search(rf"(?<!\w){re.escape(table)}(?!\w)", text, re.IGNORECASE):
            continue
        lists = _READ.findall(text)
        read = [name.strip() for names in lists for name in names.split(",")]
        alike = difflib.get_close_matches(table, [*options, *read], n=1)
        hint = f"did you mean `{alike[0]}`?" if alike else "use it after FROM or JOIN"
        raise make("SM-0110", f"the query does not use the table `{table}`", hint=hint)


def _lookup(caller: FrameType, name: str) -> Any:
    if name in caller.f_locals:
        return caller.f_locals[name]
    return caller.f_globals.get(name)
