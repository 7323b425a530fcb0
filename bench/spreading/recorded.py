"""The image with scientific packages, with a handler in it that reads what a start with imports of
them reads, but does not import: two processors cannot do that for 64 hosts."""

import ctypes
import json
import mmap
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from block_images import made

from . import handler
from .handler import Range
from .home import Home

SCIENCE = made.IMAGES[1]
BASE, NAME = "science:v1", "reading:v1"
PAGE = mmap.PAGESIZE


@dataclass
class Recorded:
    """The image at home, with the profile of a start that reads these ranges."""

    home: Home
    ranges: list[Range]

    @property
    def read_bytes(self) -> int:
        return sum(it.size for it in self.ranges)

    @property
    def image_bytes(self) -> int:
        """What a registry would send of the whole image."""
        shown = json.loads(self.home("image", "inspect", NAME, "-o", "json"))
        return sum(int(blob["bytes"]) for blob in shown["blobs"])


def record(folder: Path) -> Recorded:
    """Makes the image, and has a start recorded."""
    made.make()
    home, app = Home(folder), folder / "app"
    ranges = read_by_imports(SCIENCE.root)
    handler.write(app, ranges)
    home("image", "convert", SCIENCE.layout, BASE)
    home("image", "build", NAME, "--base", BASE, "--code", app, "--entrypoint", "/app/serve")
    with home.running():
        home("fn", "deploy", "read", "--image", NAME, *handler.READS_AT_START)
        home("fn", "call", "read")
    return Recorded(home, ranges)


def read_by_imports(root: Path) -> list[Range]:
    """The ranges of files that are in the page cache after Python has imported the packages."""
    os.sync()
    files = sorted(path for path in _files(root) if path.stat().st_size)
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    left = sum(size for path in files for _, size in _cached(path))
    subprocess.run(["chroot", root, "/usr/bin/python3", "-B", "-c", SCIENCE.python], check=True)
    found = [Range(f"/{path.relative_to(root)}", *part) for path in files for part in _cached(path)]
    if left > 1 << 20 or not found:
        raise RuntimeError(f"{left} bytes of {root} stay in the page cache, {len(found)} ranges")
    return found


def _files(root: Path) -> Iterator[Path]:
    for folder, _, files in os.walk(root):
        for path in (Path(folder) / name for name in files):
            if path.is_file() and not path.is_symlink():
                yield path


_LIBC = ctypes.CDLL(None, use_errno=True)


def _cached(path: Path) -> Iterator[tuple[int, int]]:
    """The parts of a file that are in the page cache: where they begin, and their sizes."""
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        pages = (size + PAGE - 1) // PAGE
        states = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(mapped)
        where = ctypes.c_void_p(ctypes.addressof(start))
        failed = _LIBC.mincore(where, ctypes.c_size_t(size), states)
        del start
        if failed:
            raise OSError(ctypes.get_errno(), f"mincore of {path}")
    begin = None
    for page, state in enumerate([*states, 0]):
        if state & 1 and begin is None:
            begin = page
        elif not state & 1 and begin is not None:
            yield begin * PAGE, min(page * PAGE, size) - begin * PAGE
            begin = None
