"""`pip install ./python`: the package contains its binary, or pip reports immediately why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from peer import PACKAGE_FOLDER


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package's sources in a separate checkout without builds."""
    place = tmp_path / "checkout" / "python"
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "tests", "bin")
    shutil.copytree(PACKAGE_FOLDER, place, ignore=unwanted)
    return place


def install(package: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs pip as a user would, but offline."""
    unset = {"SNOWMELT_BUILD", "CARGO_TARGET_DIR"}
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", package.parent / "to"]
    return subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, package],
        env=variables | environment,
        capture_output=True,
        text=True,
    )


def test_a_missing_binary_is_reported_with_a_command(package: Path) -> None:
    for environment in ({}, {"SNOWMELT_BUILD": "1", "PATH": "/nonexistent"}):
        done = install(package, **environment)
        assert done.returncode != 0
        said = done.stdout + done.stderr
        assert "SNOWMELT_BUILD=1 pip install ./python" in said
        assert "Building wheel" not in said and "Traceback" not in said, said


def test_built_binaries_are_installed(package: Path) -> None:
    built = package.parent / "target" / "release"
    built.mkdir(parents=True)
    for program in ("snowmelt", "snowmelt-query"):
        shutil.copy2("/bin/true", built / program)
    done = install(package)
    assert done.returncode == 0, done.stdout + done.stderr
    for program in ("snowmelt", "snowmelt-query"):
        inside = package.parent / "to" / "snowmelt" / "bin" / program
        assert inside.read_bytes() == (built / program).read_bytes()
        assert os.access(inside, os.X_OK)


def test_the_sdk_can_be_installed_without_a_binary(package: Path) -> None:
    done = install(package, SNOWMELT_BUILD="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (package.parent / "to" / "snowmelt" / "bin").exists()
