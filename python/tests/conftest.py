"""Shared fixtures: an instance for a session, and the platform's binary if it is built."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peer import Instance

from snowmelt import _binary
from snowmelt.errors import Error


@pytest.fixture(scope="session")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A process that runs user code; each test uses its own connections and code."""
    started = Instance(tmp_path_factory.mktemp("instance"))
    yield started
    started.stop()


@pytest.fixture
def own_instance(tmp_path: Path) -> Iterator[Instance]:
    """A process for one test, which may end it."""
    started = Instance(tmp_path)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def binary() -> str:
    """The platform's binary; `make test` builds it first."""
    try:
        found = _binary.find()
    except Error as error:
        pytest.skip(f"needs the snowmelt binary: {error.hint}")
    os.environ["SNOWMELT_BIN"] = found
    return found
