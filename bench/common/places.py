"""Where things are, relative to the checkout, and the binaries that the doors built."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
CHECKOUT = BENCH.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", CHECKOUT / "target")) / "release"
SNOWMELT = TARGET / "snowmelt"
HELPER = TARGET / "snowmelt-bench"
LEAN = TARGET / "snowmelt-bench-lean"
DATA = Path(os.environ.get("SNOWMELT_DATA", CHECKOUT / "data"))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the time of the block. Unlike that of `tempfile` it goes even if a program that
    an interrupted driver left behind still writes into it for a moment."""
    folder = Path(tempfile.mkdtemp(prefix="sm-"))
    try:
        yield folder
    finally:
        deadline = time.monotonic() + 10
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.05)


def shown(path: Path) -> str:
    """The path as a user in the checkout would type it."""
    try:
        return str(path.resolve().relative_to(CHECKOUT))
    except ValueError:
        return str(path)


def tpch(scale: str, tables: list[str], parts: int = 8) -> Path:
    """The folder of TPC-H tables at a scale factor, made if it is not there."""
    folder = DATA / "tpch" / f"sf{scale}"
    if not all((folder / table).is_dir() for table in tables):
        command = [HELPER, "tpch", "--scale", scale, "--out", folder, "--parts", str(parts)]
        subprocess.run([*map(str, command), "--tables", ",".join(tables)], check=True)
    return folder
