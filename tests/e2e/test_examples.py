"""The notebooks of `examples/`, as they are, each in a kernel of its own."""

import json
from collections.abc import Iterator
from pathlib import Path

import nbclient
import nbformat
import pytest
from conftest import short_folder
from suites import warm_server

from common.paths import CHECKOUT

NOTEBOOKS = sorted((CHECKOUT / "examples").glob("*.ipynb"))
CELL_SECONDS = 300


@pytest.fixture(autouse=True)
def server(nothing_left: None, shared_folder: Path) -> Iterator[None]:
    with warm_server(shared_folder):
        yield


@pytest.fixture
def jupyter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files of kernels are in a folder of the test."""
    with short_folder() as folder:
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
            monkeypatch.setenv(name, str(folder / name))
        yield


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, jupyter: None) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3").execute()
    # What it asserts is true; it has been executed to its last cell.
    assert notebook.cells[-1].execution_count is not None


def test_notebooks_are_kept_without_outputs() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), path
