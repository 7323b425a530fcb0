"""The metadata of the workspace from cargo, read once for all tests of the repository."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def _metadata(*arguments: str) -> dict[str, Any]:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


@pytest.fixture(scope="session")
def workspace() -> dict[str, Any]:
    """Only the crates of this workspace."""
    return _metadata("--no-deps")


@pytest.fixture(scope="session")
def tree() -> dict[str, Any]:
    """Every crate that a build uses on one of the supported platforms."""
    targets = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]
    return _metadata(*(word for target in targets for word in ("--filter-platform", target)))
