"""Downloads Debian packages, to be unpacked without installing them."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

_RELATIONS = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


def download(names: Sequence[str], folder: Path) -> list[Path]:
    """The packages with all their dependencies, in this folder."""
    only_needed = [f"--no-{relation}" for relation in _RELATIONS]
    told = _run("apt-cache", "depends", "--recurse", *only_needed, *names)
    found = {line for line in told.splitlines() if re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", line)}
    _run("apt-get", "download", *sorted(found), cwd=folder)
    return sorted(folder.glob("*.deb"))


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout
