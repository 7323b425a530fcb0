"""Small images of Debian's Python, each with a file of its own that its function reads when it
starts: functions that share only the interpreter."""

import os
import subprocess
from pathlib import Path

from common import debian

from . import handler
from .handler import Range
from .home import Home

BASE = "python:v1"


def name(number: int) -> str:
    """Of the image of a function."""
    return f"small-{number}:v1"


def make(folder: Path, count: int, mib: float) -> Home:
    """The images, with the profile of a start of each."""
    home, root, archives = Home(folder), folder / "root", folder / "archives"
    archives.mkdir()
    root.mkdir()
    for archive in debian.download(("python3-minimal", "libpython3-stdlib"), archives):
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True)
    home("image", "convert", f"dir:{root}", BASE)
    size = int(mib * (1 << 20))
    for number in range(count):
        app = folder / f"app-{number}"
        handler.write(app, [Range(f"{handler.APP}/own", 0, size)])
        # It cannot be compressed.
        (app / "own").write_bytes(os.urandom(size))
        code = ["--base", BASE, "--code", app, "--entrypoint", "/app/serve"]
        home("image", "build", name(number), *code)
    with home.running():
        for number in range(count):
            words = ["--image", name(number), *handler.READS_AT_START]
            home("fn", "deploy", f"read-{number}", *words)
            home("fn", "call", f"read-{number}")
    return home
