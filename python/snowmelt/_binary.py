"""Finds the `snowmelt` binary.

Order: SNOWMELT_BIN, beside this package, among the commands of its environment, the PATH, the
checkout that this package lies in.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

from .errors import make

_PACKAGE = Path(__file__).resolve().parent


def find() -> str:
    """The path of the binary. Raises `PlatformError` with the command that makes one."""
    named = os.environ.get("SNOWMELT_BIN")
    if named:
        if os.access(named, os.X_OK):
            return named
        raise make("SM-0503", f"SNOWMELT_BIN names {named}, which is no program")
    installed = Path(sysconfig.get_path("scripts")) / "snowmelt"
    beside = _PACKAGE / "bin" / "snowmelt"
    for candidate in (beside, installed, shutil.which("snowmelt"), _checkout()):
        if candidate and _is_binary(str(candidate)):
            return str(candidate)
    raise make("SM-0503", "the `snowmelt` binary is not there", hint=_hint())


def _is_binary(path: str) -> bool:
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        return False
    # A script of that name could be this package's own entry: it would start itself for ever.
    with open(path, "rb") as file:
        return file.read(2) != b"#!"


def _checkout() -> Path:
    return _PACKAGE.parent.parent / "target" / "release" / "snowmelt"


def _hint() -> str:
    root = _PACKAGE.parent.parent
    build = "cargo build --release -p snowmelt -p snowmelt-query"
    if (root / "Cargo.toml").exists():
        return f"build it: cd {root} && {build}"
    return f"build it in a checkout of Snowmelt ({build}) and name it in SNOWMELT_BIN"
