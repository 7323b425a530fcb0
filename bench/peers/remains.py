"""Removes resources that a peer may leave behind, however its benchmark ended.

All of it lies in a folder and in control groups that the bench named, so nothing of another
program is ever touched.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
# The folder of the shims' sockets, independent of their daemon's folders.
SHIM_SOCKETS = Path("/run/containerd/s")


def end(daemon: subprocess.Popen[bytes]) -> None:
    """Ends a daemon of the benchmark: SIGTERM, then SIGKILL."""
    daemon.terminate()
    try:
        daemon.wait(timeout=30)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _processes_of(folder: Path) -> list[int]:
    """containerd and its shims (which outlive it), if their command line has the folder."""
    mark, found = f"{folder}/".encode(), []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            line = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
            program = Path(line.split(b"\0")[0].decode(errors="replace")).name
            if mark in line and program.startswith("containerd"):
                found.append(int(process.name))
    return found


def _end_processes_of(folder: Path) -> None:
    deadline = time.monotonic() + 10
    while (left := _processes_of(folder)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _unmount_below(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        place = line.split()[4]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], check=False)


def _end_processes_in(group: Path) -> None:
    with suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def remove_groups(name: str) -> None:
    """Removes a control group from every hierarchy, with its descendants and processes."""
    for top in [CGROUPS / name, *CGROUPS.glob(f"*/{name}")]:
        for folder, _, _ in os.walk(top, topdown=False):
            group, deadline = Path(folder), time.monotonic() + 5
            while group.is_dir() and time.monotonic() < deadline:
                with suppress(OSError):
                    group.rmdir()
                    break
                _end_processes_in(group)
                time.sleep(0.02)


def _sockets() -> set[Path]:
    return set(SHIM_SOCKETS.iterdir()) if SHIM_SOCKETS.is_dir() else set()


@contextmanager
def cleaned(folder: Path, group: str) -> Iterator[None]:
    """Removes all resources of the peer after the block, in which its daemons have ended."""
    sockets, made = _sockets(), [p for p in (SHIM_SOCKETS, SHIM_SOCKETS.parent) if not p.exists()]
    try:
        yield
    finally:
        _end_processes_of(folder)
        _unmount_below(folder)
        remove_groups(group)
        for socket in _sockets() - sockets:
            socket.unlink(missing_ok=True)
        for place in made:
            with suppress(OSError):
                place.rmdir()
        shutil.rmtree(folder, ignore_errors=True)
