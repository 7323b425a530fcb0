"""Uploads the user's own wheels among the packages of a function.

Invariant: the platform never receives a path; the same content gives the same requirement.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable
from pathlib import Path

from ._client import Client
from .errors import make


def upload_wheels(platform: Client, packages: Iterable[str]) -> list[str]:
    """The requirements for the platform: each wheel is uploaded, and its path is replaced by a
    requirement that identifies its content. Raises `PackageError` for an unreadable path."""
    return [_upload(platform, one) if _is_wheel(one) else one for one in packages]


def _is_wheel(requirement: str) -> bool:
    return requirement.strip().endswith(".whl") and " @ " not in requirement


def _upload(platform: Client, requirement: str) -> str:
    path = Path(os.path.expanduser(requirement.strip()))
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"the wheel {path} cannot be read: {error.strerror}"
        hint = f"paths are relative to {os.getcwd()}; packages of the index have no .whl suffix"
        raise make("SM-0301", message, hint=hint) from None
    name = urllib.parse.quote(path.name, safe="")
    return str(platform.call("POST", f"/v1/wheels/{name}", content)["requirement"])
