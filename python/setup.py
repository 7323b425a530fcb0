"""Puts `snowmelt` and `snowmelt-query` into the package: those that are built, or with
SNOWMELT_BUILD=1 those that cargo builds now. With SNOWMELT_BUILD=0 there are none.

Everything else stands in pyproject.toml; `build_backend.py` has refused what cannot be built.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))
from build_backend import ROOT, built  # noqa: E402


class BuildWithBinary(build_py):
    """Puts the programs beside the Python files."""

    def run(self):
        super().run()
        asked = os.environ.get("SNOWMELT_BUILD")
        if asked == "0" or self.editable_mode:
            return
        if asked == "1":
            command = ["cargo", "build", "--locked", "--release", "-p", "snowmelt"]
            command += ["-p", "snowmelt-query"]
            subprocess.run(command, cwd=ROOT, check=True)
        place = Path(self.build_lib, "snowmelt", "bin")
        place.mkdir(parents=True, exist_ok=True)
        for program in built():
            shutil.copy2(program, place / program.name)


setup(cmdclass={"build_py": BuildWithBinary})
