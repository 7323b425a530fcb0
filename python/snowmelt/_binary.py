"""Finds the `snowmelt` binary.

Search order: SNOWMELT_BIN, the folder `bin` of this package, the commands of its environment, the
PATH, the checkout that contains this package.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

from .errors import make

_PACKAGE = Path(__file__).resolve().parent


def find() -> str:
    """The path of the binary. Raises `PlatformError` with the command that builds one."""
    named = os.environ.get("SNOWMELT_BIN")
    if named:
        if os.access(named, os.X_OK):
            return named
        raise make("SM-0503", f"SNOWMELT_BIN is {named}, which is not an executable file")
    installed = Path(sysconfig.get_path("scripts")) / "snowmelt"
    beside = _PACKAGE / "bin" / "snowmelt"
    for candidate in (beside, installed, shutil.which("snowmelt"), _checkout()):
        if candidate and _is_binary(str(candidate)):
            return str(candidate)
    raise make("SM-0503", "the `snowmelt` binary was not found", hint=_hint())


def _is_binary(path: str) -> bool:
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        return False
    # A script of that name could be the entry point of this package, which would execute itself
    # in an endless loop.
    with open(path, "rb") as file:
        return file.read(2) != b"#!"


def _checkout() -> Path:
    return _PACKAGE.parent.parent / "target" / "release" / "snowmelt"


def _hint() -> str:
    root = _PACKAGE.parent.parent
    build = "cargo build --release -p snowmelt -p snowmelt-query"
    if (root / "Cargo.toml").exists():
        return f"build it: cd {root} && {build}"
    return f"build it in a checkout of Snowmelt ({build}) and set SNOWMELT_BIN to its path"
