"""A bare Debian of this machine's release, as a folder, and commands that run in a copy of it."""

import fcntl
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.paths import DATA

PACKAGES = "python3,python3-venv,ca-certificates"

# User namespaces cannot be created in a `chroot`, so the copy becomes the root of a mount
# namespace. Arguments: the copy, its data folder, the data; then the command.
ENTER = """
set -e
root=$1 at=$2 data=$3
shift 3
mount --rbind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/$at" "$root/before"
mount --bind -o ro "$data" "$root/$at"
cd "$root"
pivot_root . before
umount -l /before
cd /root
exec "$@"
"""


def _release() -> str:
    found = platform.freedesktop_os_release()
    if found.get("ID") != "debian" or not shutil.which("debootstrap"):
        pytest.skip("needs Debian and debootstrap (scripts/setup e2e installs it)")
    return found["VERSION_CODENAME"]


def _mirror(release: str) -> list[str]:
    """The mirror from which apt gets this release; empty for debootstrap's default."""
    # Only Debian's mirrors: other repositories may use the same release name.
    chosen = ["Created-By: Packages", "Component: main", "Origin: Debian", f"Codename: {release}"]
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *chosen]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [uri for uri in found if uri.startswith(("http:", "https:", "file:"))][:1]


def bare() -> Path:
    """The folder, created once."""
    release = _release()
    folder = DATA / f"debian-{release}"
    DATA.mkdir(parents=True, exist_ok=True)
    with open(DATA / f".debian-{release}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            unfinished = DATA / f".debian-{release}.tmp"
            shutil.rmtree(unfinished, ignore_errors=True)
            command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", release]
            command += [str(unfinished), *_mirror(release)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            unfinished.rename(folder)
    return folder


@dataclass(frozen=True)
class Machine:
    """A copy of the bare Debian, with data at `at`."""

    root: Path
    at: str
    data: Path

    def run(self, *command: str, seconds: float = 120) -> str:
        """The stdout of a command; if it fails, the error contains its output."""
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "enter"]
        environment = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/root"}
        done = subprocess.run(
            [*enter, str(self.root), self.at, str(self.data), *command],
            env=environment | {"LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


def copy_of(bare_root: Path, folder: Path, at: str, data: Path) -> Machine:
    """A new machine in `folder`."""
    root = folder / "root"
    command = ["cp", "-a", "--reflink=auto", str(bare_root), str(root)]
    subprocess.run(command, check=True)
    root.chmod(0o755)
    return Machine(root, at, data)
