"""Runs the demo's own platform, and finds resources that it left behind.

Other platforms may run on the machine, so the state before the run is not used for comparison.
Processes are identified by descent (this process adopts its orphaned descendants), control groups
by the names of the demo's platforms, mounts and files by their folder.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
CGROUPS = Path("/sys/fs/cgroup")


class DemoPlatform:
    """Runs commands with separate state, socket and run folder."""

    def __init__(self, folder: Path, binary: Path) -> None:
        self.folder, self.binary = folder, binary
        # A run directory and its control group are called PID-MILLISECONDS.
        self._began: set[str] = set()

    def run(self, arguments: Sequence[str], **options: object) -> int:
        """Runs a command as a user would; its output goes to the terminal."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SNOWMELT_")}
        paths = {"STATE": "state", "SOCKET": "sock", "RUN": "run"}
        environment |= {f"SNOWMELT_{k}": str(self.folder / v) for k, v in paths.items()}
        process = subprocess.Popen([str(self.binary), *arguments], env=environment, **options)  # type: ignore[call-overload]
        self._began.add(f"{process.pid}-")
        try:
            code = int(process.wait())
        except BaseException:
            process.terminate()
            process.wait()
            raise
        self._began |= {entry.name for entry in self._run_folders()}
        return code

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Runs a server during the block."""
        if self.run(["up"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
            raise SystemExit("`snowmelt up` failed; `snowmelt doctor` may say why")
        try:
            yield
        finally:
            self.run(["down"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def left(self) -> list[str]:
        """The resources of the platform that exist now, one line each."""
        found = [f"process {line}" for line in _descendants()]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split()[4] for line in mounts]
        found += [f"mount {point}" for point in points if point.startswith(f"{self.folder}/")]
        found += [f"control group {group}" for group in self._groups()]
        return found + [f"folder {folder}" for folder in self._run_folders()]

    def remaining_within(self, seconds: float) -> list[str]:
        """Waits until `left` is empty or the time is up; returns `left`."""
        deadline = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _run_folders(self) -> list[Path]:
        run = self.folder / "run"
        return sorted(run.iterdir()) if run.is_dir() else []

    def _groups(self) -> list[str]:
        groups = [*CGROUPS.glob("snowmelt/*"), *CGROUPS.glob("*/snowmelt/*")]
        names = tuple(self._began)
        return [str(group) for group in groups if group.is_dir() and group.name.startswith(names)]


@contextmanager
def demo_platform(binary: Path) -> Iterator[DemoPlatform]:
    """A platform in a temporary folder, which is deleted after the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this process cannot adopt its descendants")
    # A socket's path has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="snowmelt-demo-", dir="/tmp"))
    # Functions run as other users, which must be able to traverse the folder.
    folder.chmod(0o711)
    try:
        yield DemoPlatform(folder, binary)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _descendants() -> list[str]:
    """All descendants of this process, with id and command line. Reaps ended orphans."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [os.getpid()]
    while todo:
        children = parents.get(todo.pop(), [])
        todo += children
        found += [line for line in map(_line, children) if line]
    return found


def _line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return f"{pid} {words.replace(bytes(1), b' ').decode(errors='replace').strip()}"
