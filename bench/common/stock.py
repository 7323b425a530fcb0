"""What a machine holds that a platform could leave behind: taken before and after, then compared.

Other programs run on the machine as well, so processes are ours only by what they run, and files
only by name. Mounts, network namespaces and cgroups are compared in full, but for those that are
named as other programs' own.
"""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def _processes() -> set[str]:
    """Our processes: the binary, whatever it is called by, and what runs the sandbox runtime."""
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
        ours = program == "snowmelt" or "internal worker" in line or "internal spawner" in line
        if (ours or "snowmelt/_runtime" in line or "snowmelt._runtime" in line) and state != "Z":
            found.add(f"{folder.name} {line}")
    return found


def _mounts() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {" ".join(line.split()[3:5]) for line in lines}


def _network_namespaces() -> set[str]:
    answer = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    return {line.split()[0] for line in answer.stdout.splitlines() if line.strip()}


def _cgroups() -> set[str]:
    return {folder for folder, _, _ in os.walk(CGROUPS) if "snowmelt" in folder}


def _files() -> set[str]:
    """Ours in the folders for temporary and run-time files."""
    places = {Path(tempfile.gettempdir()), Path("/tmp"), Path("/run"), Path("/dev/shm")}
    return {str(p) for place in places if place.is_dir() for p in place.glob("*snowmelt*")}


@dataclass(frozen=True)
class Stock:
    """What is there at one moment."""

    processes: set[str] = field(default_factory=_processes)
    mounts: set[str] = field(default_factory=_mounts)
    network_namespaces: set[str] = field(default_factory=_network_namespaces)
    cgroups: set[str] = field(default_factory=_cgroups)
    files: set[str] = field(default_factory=_files)

    def left_by_now(self) -> dict[str, set[str]]:
        """What has come since, by kind; empty if nothing."""
        now = Stock()
        kinds = ("processes", "mounts", "network_namespaces", "cgroups", "files")
        left = {kind: getattr(now, kind) - getattr(self, kind) for kind in kinds}
        return {kind: things for kind, things in left.items() if things}

    def left_within(self, seconds: float) -> dict[str, set[str]]:
        """As `left_by_now`, once nothing is left or the time is up."""
        deadline = time.monotonic() + seconds
        while (left := self.left_by_now()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left
