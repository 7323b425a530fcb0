"""The build backend: setuptools, after a check that the programs for the package exist.

pip calls these functions before it downloads anything, so a missing binary is reported
immediately. An editable installation uses the checkout's binary and does not call them.
"""

import os
import shutil
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

ROOT = Path(__file__).resolve().parent.parent

MISSING = """
snowmelt: {reason}. Run one of these:

  cargo build --release -p snowmelt -p snowmelt-query && pip install ./python   # first: 20 min
  SNOWMELT_BUILD=1 pip install ./python   # the same in one command
  SNOWMELT_BUILD=0 pip install ./python   # without the binary: set SNOWMELT_BIN
"""


def get_requires_for_build_wheel(*arguments):
    """The requirements of setuptools."""
    refuse_without_binary()
    return build_meta.get_requires_for_build_wheel(*arguments)


def prepare_metadata_for_build_wheel(*arguments):
    """pip calls this first if it uses no isolated build environment."""
    refuse_without_binary()
    return build_meta.prepare_metadata_for_build_wheel(*arguments)


def refuse_without_binary():
    """Ends the installation if the binary will be missing."""
    reason = missing(os.environ.get("SNOWMELT_BUILD"))
    if reason is not None:
        raise SystemExit(MISSING.format(reason=reason))


def missing(requested):
    """The reason why the binary will be missing, otherwise None."""
    if requested == "0":
        return None
    if requested == "1":
        can_build = shutil.which("cargo") and (ROOT / "Cargo.toml").exists()
        return (
            None
            if can_build
            else "to build its binary, cargo (https://rustup.rs) and a checkout are needed"
        )
    return None if all(program.exists() for program in built()) else "its programs are not built"


def built():
    """The paths of the programs that cargo builds."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target", "release")
    return [folder / "snowmelt", folder / "snowmelt-query"]
