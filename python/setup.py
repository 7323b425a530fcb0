"""Builds the `snowmelt` binary into the package when SNOWMELT_BUILD=1 asks for it.

Everything else stands in pyproject.toml. Without the variable the package finds a binary where
`snowmelt/_binary.py` says, and names the command that makes one.
"""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent


class BuildWithBinary(build_py):
    """Runs cargo first, and puts what it made beside the Python files."""

    def run(self):
        super().run()
        if os.environ.get("SNOWMELT_BUILD") != "1":
            return
        subprocess.run(["cargo", "build", "--release", "-p", "snowmelt"], cwd=ROOT, check=True)
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        place = Path(self.build_lib, "snowmelt", "bin")
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target / "release" / "snowmelt", place / "snowmelt")


setup(cmdclass={"build_py": BuildWithBinary})
