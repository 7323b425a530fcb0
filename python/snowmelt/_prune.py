"""`sm.prune`: what nothing of this user uses on the platform, also one of another host.

Boundary: the platform decides what is in use and removes the rest.
"""

from __future__ import annotations

from typing import Any

from ._program import running
from .errors import hide_internal_frames


@hide_internal_frames
def prune(
    *, remove: bool = False, results: bool = False, tenant: str | None = None
) -> list[dict[str, Any]]:
    """Shows what the running server could remove, because nothing uses it, or removes it.

    Each part has its `name`, how many `items` and `bytes`, and why nothing of it goes (`kept`).
    `results` also counts or removes results of asynchronous calls that are still to be kept. See
    docs/reference/configuration.md. Raises `Error`.
    """
    request = {"dry_run": not remove, "results": results}
    parts: list[dict[str, Any]] = running(tenant).call("POST", "/v1/prunings", request)
    return parts
