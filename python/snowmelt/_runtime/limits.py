"""Which limit of the sandbox caused an exception of the user's code.

Invariant: nothing here needs the exhausted resource: it opens no file and starts no process.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from typing import Any

SCRATCH = "/tmp"

_AT_ITS_PROCESSES = "it is at its limit of processes and threads: start fewer"

Reached = tuple[str, dict[str, Any]]

# For each connection's thread: functions in SQL have no options for these limits.
_thread = threading.local()


def of_udf() -> None:
    """Keeps the hints of this thread from naming options that `@sm.udf` lacks."""
    _thread.is_udf = True


def fewer_processes() -> str:
    """The hint for the limit of processes."""
    return _with(_AT_ITS_PROCESSES, "raise pids= (fn deploy --pids)")


def more_memory() -> str:
    """The hint for the limit of memory."""
    return _with('give the function more memory: memory="1GiB"', "--memory 1GiB (fn deploy)")


def _with(advice: str, option: str) -> str:
    return advice if hasattr(_thread, "is_udf") else f"{advice}, or {option}"


def reached(error: BaseException) -> Reached | None:
    """The kind of failure and its `limit`, `peak` and `hint`; None if no limit caused it."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOSPC:
        return _scratch()
    if number == errno.EMFILE:
        return _files()
    thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    if thread or (number == errno.EAGAIN and isinstance(error, BlockingIOError) and _forked(error)):
        return "processes", {"hint": fewer_processes()}
    return None


def _scratch() -> Reached | None:
    try:
        folder = os.statvfs(SCRATCH)
    except OSError:
        return None
    limit = folder.f_blocks * folder.f_frsize
    # The files may be removed by now; only where inodes ran out the bytes were not the cause.
    used = limit if folder.f_favail else limit - folder.f_bfree * folder.f_frsize
    twice = max(limit * 2 >> 20, 1)
    advice = "write less to /tmp, or remove what is done with"
    hint = _with(advice, f'give it more with scratch="{twice}MiB" (fn deploy --scratch)')
    return "scratch", {"limit": limit, "peak": used, "hint": hint}


def _files() -> Reached:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    option = f"raise open_files={limit * 2} (fn deploy --open-files)"
    hint = _with("close what is done with", option)
    return "files", {"limit": limit, "peak": limit, "hint": hint}


def _forked(error: BaseException) -> bool:
    """Whether a fork raised it: a non-blocking read raises the same error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    names = {"fork", "forkpty", "fork_exec", "_fork_exec", "posix_spawn", "_launch"}
    return bool(names.intersection(code.co_names)) or code.co_name in names
