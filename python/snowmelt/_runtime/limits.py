"""Which limit of the sandbox an exception of the user's code came from.

Invariant: nothing here needs what the limit denies: it opens no file and starts no process.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Any

SCRATCH = "/tmp"

FEWER_PROCESSES = (
    "it is at its limit of processes and threads: start fewer; a deployed function gets more with"
    " pids= (fn deploy --pids)"
)

Reached = tuple[str, dict[str, Any]]


def reached(error: BaseException) -> Reached | None:
    """The kind of failure and its `limit`, `peak` and `hint`; none if no limit is behind it."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOSPC:
        return _scratch()
    if number == errno.EMFILE:
        return _files()
    thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    if thread or (number == errno.EAGAIN and isinstance(error, BlockingIOError) and _forked(error)):
        return "processes", {"hint": FEWER_PROCESSES}
    return None


def _scratch() -> Reached | None:
    try:
        folder = os.statvfs(SCRATCH)
    except OSError:
        return None
    limit = folder.f_blocks * folder.f_frsize
    # What filled it may be removed by now; only where files ran out it was not full of bytes.
    used = limit if folder.f_favail else limit - folder.f_bfree * folder.f_frsize
    twice = max(limit * 2 >> 20, 1)
    more = f'scratch="{twice}MiB" (fn deploy --scratch)'
    # An option that UDFs do not have: whoever wrote one must not be sent to look for it.
    hint = f"write less; a deployed function gets more with {more}"
    return "scratch", {"limit": limit, "peak": used, "hint": hint}


def _files() -> Reached:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = f"open_files={limit * 2} (fn deploy --open-files)"
    hint = f"close what is done with; a deployed function gets more with {more}"
    return "files", {"limit": limit, "peak": limit, "hint": hint}


def _forked(error: BaseException) -> bool:
    """Whether it came from a fork: a read that does not block raises the same."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    names = {"fork", "forkpty", "fork_exec", "_fork_exec", "posix_spawn", "_launch"}
    return bool(names.intersection(code.co_names)) or code.co_name in names
