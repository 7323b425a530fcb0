"""The user's own wheels among the packages of a function: uploaded by content.

Invariant: what the platform gets names no path; the same content is the same requirement.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable
from pathlib import Path

from ._client import Client
from .errors import make


def sent(platform: Client, packages: Iterable[str]) -> list[str]:
    """The requirements as the platform takes them: a path of a wheel becomes what names its
    content, once that is sent. Raises `PackageError` for a path that cannot be read."""
    return [_send(platform, one) if _is_wheel(one) else one for one in packages]


def _is_wheel(requirement: str) -> bool:
    return requirement.strip().endswith(".whl") and " @ " not in requirement


def _send(platform: Client, requirement: str) -> str:
    path = Path(os.path.expanduser(requirement.strip()))
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"the wheel {path} cannot be read: {error.strerror}"
        hint = f"a path is taken from {os.getcwd()}; a package of the index is named without .whl"
        raise make("SM-0301", message, hint=hint) from None
    name = urllib.parse.quote(path.name, safe="")
    return str(platform.call("POST", f"/v1/wheels/{name}", content)["requirement"])
