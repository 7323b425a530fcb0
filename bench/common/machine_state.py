"""The resources of a machine that a platform could leak: recorded before and after, then compared.

Other programs run on the machine as well, so processes are identified by their command line, and
files by name. Mounts and network namespaces are compared completely, cgroups by name.
"""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def _processes() -> set[str]:
    """Processes of Snowmelt: the binary, and processes that run the sandbox runtime."""
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        program = os.path.basename(words[0].decode(errors="replace"))
        line = b" ".join(words).decode(errors="replace").strip()
        ours = (
            program in ("snowmelt", "snowmelt-query")
            or "internal worker" in line
            or "internal spawner" in line
        )
        if (ours or "snowmelt/_runtime" in line or "snowmelt._runtime" in line) and state != "Z":
            found.add(f"{folder.name} {line}")
    return found


def _mounts() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found = {" ".join(line.split()[3:5]) for line in lines}
    # `ip netns add`, which tests call, makes this one on a fresh machine, and keeps it.
    return {mount for mount in found if not mount.endswith(" /run/netns")}


def _network_namespaces() -> set[str]:
    answer = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    return {line.split()[0] for line in answer.stdout.splitlines() if line.strip()}


def _cgroups() -> set[str]:
    return {folder for folder, _, _ in os.walk(CGROUPS) if "snowmelt" in folder}


def _files() -> set[str]:
    """Files of Snowmelt in the folders for temporary and run-time files."""
    folders = {Path(tempfile.gettempdir()), Path("/tmp"), Path("/run"), Path("/dev/shm")}
    return {str(p) for folder in folders if folder.is_dir() for p in folder.glob("*snowmelt*")}


@dataclass(frozen=True)
class MachineState:
    """The resources at one moment."""

    processes: set[str] = field(default_factory=_processes)
    mounts: set[str] = field(default_factory=_mounts)
    network_namespaces: set[str] = field(default_factory=_network_namespaces)
    cgroups: set[str] = field(default_factory=_cgroups)
    files: set[str] = field(default_factory=_files)

    def new_since(self) -> dict[str, set[str]]:
        """Resources that have appeared since, by kind; empty if none."""
        now = MachineState()
        kinds = ("processes", "mounts", "network_namespaces", "cgroups", "files")
        left = {kind: getattr(now, kind) - getattr(self, kind) for kind in kinds}
        return {kind: things for kind, things in left.items() if things}

    def remaining_within(self, seconds: float) -> dict[str, set[str]]:
        """Waits until `new_since` is empty or the time is up; returns it."""
        deadline = time.monotonic() + seconds
        while (left := self.new_since()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left
