"""A function that reads ranges of files of its image.

An event may ask for the reads. With READ_AT=start they are a part of the start, as imports are, so
that the start profile has them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from common.served import program

APP = "/app"
READS_AT_START = ("--env", "READ_AT=start")
READ = """def read():
    with open("/app/ranges") as ranges:
        for line in ranges:
            path, begin, size = line.rstrip("\\n").split("\\t")
            with open(path, "rb", buffering=0) as file:
                file.seek(int(begin))
                left = int(size)
                while left > 0 and (piece := file.read(min(left, 1 << 20))):
                    left -= len(piece)
"""
SERVE = program(
    f"import time\n{READ}"
    + """def answer(event):
    if event.get("read"):
        read()
    time.sleep(event.get("sleep", 0))
    return {"at": time.time()}
if os.environ.get("READ_AT") == "start":
    read()
"""
)


@dataclass(frozen=True)
class Range:
    """A part of a file of the image."""

    path: str
    begin: int
    size: int


def write(app: Path, ranges: Iterable[Range]) -> None:
    """The folder that is `/app` in the image."""
    app.mkdir()
    (app / "serve").write_text(SERVE)
    (app / "serve").chmod(0o755)
    write_ranges(app / "ranges", ranges)


def write_ranges(file: Path, ranges: Iterable[Range]) -> None:
    file.write_text("".join(f"{it.path}\t{it.begin}\t{it.size}\n" for it in ranges))
