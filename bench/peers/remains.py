"""Taking away what a peer could leave behind, however its bench ended.

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
# Shims have their sockets there, wherever their daemon has its own folders.
SHIM_SOCKETS = Path("/run/containerd/s")


def end(daemon: subprocess.Popen[bytes]) -> None:
    """Ends a daemon that the bench started: politely, then not."""
    daemon.terminate()
    try:
        daemon.wait(timeout=30)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _processes_of(folder: Path) -> list[int]:
    """containerd and its shims, which outlive their daemon, if they were given the folder."""
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
    """Removes a control group of every hierarchy, with all below it and who is in there."""
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
    """After the block, of which the daemons have ended, nothing of the peer is left."""
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
