"""Paths of the checkout, of data, and of the binaries that the make targets build."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
CHECKOUT = BENCH.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", CHECKOUT / "target")) / "release"
# Copies of the programs, while TARGET is compiled again (.ci/run).
PROGRAMS = Path(os.environ.get("SNOWMELT_PROGRAMS", TARGET))
SNOWMELT = PROGRAMS / "snowmelt"
HELPER = TARGET / "snowmelt-bench"
LEAN = TARGET / "snowmelt-bench-lean"
DATA = Path(os.environ.get("SNOWMELT_DATA", CHECKOUT / "data"))


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder. Unlike that of `tempfile` it is deleted even if a program that an
    interrupted driver left behind still writes to it for a moment."""
    folder = Path(tempfile.mkdtemp(prefix="sm-"))
    try:
        yield folder
    finally:
        deadline = time.monotonic() + 10
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.05)


def shown(path: Path) -> str:
    """The path relative to the checkout, for messages and commands."""
    try:
        return str(path.resolve().relative_to(CHECKOUT))
    except ValueError:
        return str(path)


def tpch(scale: str, tables: list[str], parts: int = 8) -> Path:
    """The folder of TPC-H tables at a scale factor, generated if missing. A table is a folder
    of parts, which is renamed into place when it is complete."""
    folder = DATA / "tpch" / f"sf{scale}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for table in tables:
            if not (folder / table).is_dir():
                _make(folder, scale, table, parts)
    return folder


def _make(folder: Path, scale: str, table: str, parts: int) -> None:
    unfinished = folder / f".{table}.tmp"
    shutil.rmtree(unfinished, ignore_errors=True)
    # Large row groups for range reads: the generator's default of 7 MiB needs a request each.
    command = [str(Path(sys.executable).parent / "tpchgen-cli"), "parquet", "--quiet"]
    command += ["--scale-factor", scale, "--tables", table, "--parts", str(parts)]
    command += ["--compression", "zstd(1)", "--row-group-bytes", str(64 << 20)]
    subprocess.run([*command, "--output-dir", str(unfinished)], check=True)
    (unfinished / table).rename(folder / table)
    unfinished.rmdir()
