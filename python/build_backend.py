"""The build backend: setuptools, after a check that there are programs for the package.

pip asks for the requirements of a build before it fetches anything, so this is where a missing
binary is reported at once. An editable installation finds the checkout's own binary and asks
nothing.
"""

import os
import shutil
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

ROOT = Path(__file__).resolve().parent.parent

MISSING = """
snowmelt: {reason}. Type one of these:

  cargo build --release -p snowmelt -p snowmelt-query && pip install ./python   # some 20 minutes the first time
  SNOWMELT_BUILD=1 pip install ./python   # the same in one command
  SNOWMELT_BUILD=0 pip install ./python   # without it: name one in SNOWMELT_BIN
"""


def get_requires_for_build_wheel(*arguments):
    """What setuptools needs."""
    refuse_without_binary()
    return build_meta.get_requires_for_build_wheel(*arguments)


def prepare_metadata_for_build_wheel(*arguments):
    """What pip asks first where it brings no build environment of its own."""
    refuse_without_binary()
    return build_meta.prepare_metadata_for_build_wheel(*arguments)


def refuse_without_binary():
    """Ends the installation if there will be no binary."""
    reason = missing(os.environ.get("SNOWMELT_BUILD"))
    if reason is not None:
        raise SystemExit(MISSING.format(reason=reason))


def missing(asked):
    """Why there will be no binary, if so."""
    if asked == "0":
        return None
    if asked == "1":
        there = shutil.which("cargo") and (ROOT / "Cargo.toml").exists()
        return (
            None
            if there
            else "to build its binary, cargo (https://rustup.rs) and a checkout are needed"
        )
    return None if all(program.exists() for program in built()) else "its programs are not built"


def built():
    """Where cargo puts the programs."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target", "release")
    return [folder / "snowmelt", folder / "snowmelt-query"]
