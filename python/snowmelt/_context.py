"""Contexts: platforms by name, with logins, as the command line knows them.

Invariant: the command alone reads the files of contexts and renews logins; this module asks it, so
both choose the same platform and never use a refresh token at the same time.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _binary
from .errors import Error, from_report, make

# A renewal may wait for another process and for an issuer that answers slowly.
_COMMAND_SECONDS = 60.0

# How much of its life a token has left when it is asked for again: the command renews at the same
# time, so that asking earlier gives the same token.
_LEAST_LEFT_SECONDS = 60.0


@dataclass(frozen=True)
class Connection:
    """A platform on another host, and the token for it."""

    context: str | None
    url: str
    ca: str | None
    tenant: str | None
    token: str
    expires_ms: int | None


class ContextToken:
    """The token of a context, asked for again before it ends; thread-safe."""

    def __init__(self, context: str, found: Connection) -> None:
        self.context = context
        self._url, self._token = found.url, found.token
        self._due = _due(found)
        self._lock = threading.Lock()

    def text(self) -> str:
        """The token. Raises `Error` if somebody has to log in again."""
        with self._lock:
            if self._due is not None and time.time() >= self._due:
                found = connection(self.context)
                if found is None or found.url != self._url:
                    # The token is for the other address.
                    raise make(
                        "SM-0110", f"the context `{self.context}` is for another platform now"
                    )
                self._token, self._due = found.token, _due(found)
            return self._token


def _due(found: Connection) -> float | None:
    if found.expires_ms is None:
        return None
    left = found.expires_ms / 1000 - time.time()
    return time.time() + left - min(_LEAST_LEFT_SECONDS, max(left, 0) / 2)


def is_configured() -> bool:
    """Whether there are contexts, so that the command is worth asking."""
    return bool(os.environ.get("SNOWMELT_CONTEXT")) or _file().exists()


def _file() -> Path:
    if named := os.environ.get("SNOWMELT_CONTEXTS"):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(folder) / "snowmelt" / "contexts.toml"


def connection(context: str | None) -> Connection | None:
    """The platform of a context, or the one that commands use; `None` for that of this machine.

    Raises `Error`.
    """
    named = [] if context is None else ["--context", context]
    command = [_binary.find(), "--errors", "json", *named, "context", "token", "-o", "json"]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired:
        message = f"`snowmelt context token` did not end within {_COMMAND_SECONDS:.0f} s"
        raise make("SM-0524", message, retryable=True) from None
    if done.returncode != 0:
        raise _failure(done)
    found: dict[str, Any] | None = json.loads(done.stdout)
    return None if found is None else Connection(**found)


def _failure(done: subprocess.CompletedProcess[bytes]) -> Error:
    lines = done.stderr.decode(errors="replace").splitlines()
    try:
        return from_report(json.loads(lines[-1]))
    except (IndexError, ValueError, KeyError, TypeError):
        message = f"`snowmelt context token` failed (exit code {done.returncode})"
        return make("SM-0503", message, excerpt=lines[-10:])
