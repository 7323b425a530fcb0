"""Options of exchanges between stages, in the form of the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _amounts
from .errors import make

_MEDIA = ("auto", "files", "hosts", "streams", "objects")


def to_wire(
    medium: str | None,
    locations: str | Sequence[str] | None,
    levels: int | None,
    combining: bool | None,
    task: _amounts.Memory | None,
) -> dict[str, Any]:
    """The options of exchanges that are given. The platform checks what they need of each other."""
    given: dict[str, Any] = {}
    if medium is not None:
        if not isinstance(medium, str) or medium not in _MEDIA:
            names = ", ".join(_MEDIA)
            raise make("SM-0110", f"exchange= is one of {names}, not {medium!r}")
        given["medium"] = medium
    if locations is not None:
        given["locations"] = [locations] if isinstance(locations, str) else list(locations)
    if levels is not None:
        given["levels"] = _amounts.count("exchange_levels", levels)
    if combining is not None:
        given["combining"] = bool(combining)
    if task is not None:
        given["task_bytes"] = _amounts.memory_bytes(task)
    return given
