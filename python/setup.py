"""Copies `snowmelt` and `snowmelt-query` into the package: the existing builds, or with
SNOWMELT_BUILD=1 new ones. With SNOWMELT_BUILD=0 the package has no programs.

All other settings are in pyproject.toml; `build_backend.py` has already checked that the programs
exist or can be built.
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
    """Copies the programs into the package."""

    def run(self):
        super().run()
        requested = os.environ.get("SNOWMELT_BUILD")
        if requested == "0" or self.editable_mode:
            return
        if requested == "1":
            command = ["cargo", "build", "--locked", "--release", "-p", "snowmelt"]
            command += ["-p", "snowmelt-query"]
            subprocess.run(command, cwd=ROOT, check=True)
        folder = Path(self.build_lib, "snowmelt", "bin")
        folder.mkdir(parents=True, exist_ok=True)
        for program in built():
            shutil.copy2(program, folder / program.name)


setup(cmdclass={"build_py": BuildWithBinary})
