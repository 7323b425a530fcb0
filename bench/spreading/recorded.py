"""The image with scientific packages, with a handler in it that reads what a start with imports of
them reads, but does not import: two processors cannot do that for 64 hosts."""

import ctypes
import json
import mmap
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from block_images import made

from . import handler
from .handler import Range
from .home import Home

SCIENCE = made.IMAGES[1]
BASE, NAME = "science:v1", "reading:v1"
PAGE = mmap.PAGESIZE
PACKAGES, OTHERS = f"/{made.PLACE}/", {"scikit_learn": "sklearn"}
# Writes the path of each module and of each other file that Python opens.
LOGGED = """import os, sys
def log(event, args):
    path = args[0] if event == "open" else args[1] if event == "import" else None
    if isinstance(path, str):
        os.write(1, path.encode() + b"\\n")
sys.addaudithook(log)
"""


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
    """The ranges of files that are in the page cache after Python has imported the packages, in
    about the order in which it reads them."""
    os.sync()
    files = sorted(path for path in _files(root) if path.stat().st_size)
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    left = sum(size for path in files for _, size in _cached(path))
    python = ["chroot", str(root), "/usr/bin/python3", "-B", "-c", LOGGED + SCIENCE.python]
    opened = subprocess.run(python, check=True, stdout=subprocess.PIPE, text=True).stdout
    order = _order(opened.splitlines())
    found = [Range(f"/{path.relative_to(root)}", *part) for path in files for part in _cached(path)]
    found.sort(key=lambda it: order(it.path))
    if left > 1 << 20 or not found:
        raise RuntimeError(f"{left} bytes of {root} stay in the page cache, {len(found)} ranges")
    return found


def _order(opened: Sequence[str]) -> Callable[[str], int]:
    """The place of a file among those that Python opened. The libraries that come with a package
    are read with its first module, and those of the system before all."""
    places = {path: place for place, path in reversed(list(enumerate(opened, 1)))}
    packages: dict[str, int] = {}
    for path, place in sorted(places.items(), key=lambda it: it[1]):
        if ".so" in path and PACKAGES in path:
            packages.setdefault(path.partition(PACKAGES)[2].partition("/")[0], place)

    def order(path: str) -> int:
        package, libraries, _ = path.partition(PACKAGES)[2].partition(".libs/")
        # Of scikit_learn.libs, for example, the package has another name.
        own = packages.get(package, packages.get(OTHERS.get(package, ""), 0)) if libraries else 0
        return places.get(path, own)

    return order


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
