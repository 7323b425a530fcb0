"""Functions that ask for a version of Python: what is sent, and which interpreter runs it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from peer import PACKAGE_FOLDER

import snowmelt as sm
from snowmelt import _server, _ship, _versions

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OLDEST = 10

MODULE = """
import sys
import snowmelt as sm

@sm.function(python="{version}")
def shown(event):
    return [*sys.version_info[:2], event]

@sm.udf(python="{version}")
def minor(n: int) -> int:
    return sys.version_info.minor + n
"""


def imported(folder: Path, version: str) -> ModuleType:
    """A module of a user's, whose functions ask for the version."""
    name = f"asks_for_{version.replace('.', '_')}"
    path = folder / f"{name}.py"
    path.write_text(MODULE.format(version=version))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_a_version_is_a_requirement() -> None:
    assert _versions.with_version(["six"], None) == ["six"]
    assert _versions.with_version(["six"], "3.13") == ["six", "python==3.13"]
    for bad in (3.13, ">=3.12", "three", ""):
        with pytest.raises(TypeError, match="is not a version"):
            sm.function(python=bad)(len)  # type: ignore[call-overload]
    assert _versions.of_another(["six", f"python=={HERE}", f"python == {HERE}.*"]) is None
    assert _versions.of_another(["python==3.99"]) == "3.99"
    # The platform compares it with what the code was pickled by.
    assert _versions.of_another(["python>=3.99", "python-dateutil==3.99"]) is None


def test_code_for_another_version_is_sent_as_the_source_of_its_file(tmp_path: Path) -> None:
    module = imported(tmp_path, "3.99")
    assert module.shown.packages == ["python==3.99"]
    assert module.minor.signature.packages == ("python==3.99",)
    for thing, name in ((module.shown.function, "shown"), (module.minor, "minor")):
        code, broadcasts = _ship.code_of(thing, name, ["python==3.99"])
        assert code == {
            "kind": "source",
            "file": module.__file__,
            "text": MODULE.format(version="3.99"),
        }
        assert broadcasts == []
        assert _ship.code_of(thing, name, [f"python=={HERE}"])[0]["kind"] == "pickle"


def test_what_a_file_does_not_define_cannot_be_sent_to_another_version() -> None:
    def inner(event: object) -> object:
        return event

    for thing, name in ((inner, "inner"), (lambda event: event, "<lambda>"), (len, "len")):
        with pytest.raises(sm.FunctionError, match=r"asks for Python 3\.99") as refused:
            _ship.code_of(thing, name, ["python==3.99"])
        assert refused.value.code == "SM-0204"
        assert "top level" in str(refused.value.hint)


@pytest.fixture(scope="module")
def platform(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A private platform with its own state folder, which runs functions with this Python."""
    state = tmp_path_factory.mktemp("state")
    state.chmod(0o755)
    patch = pytest.MonkeyPatch()
    patch.setenv("SNOWMELT_STATE", str(state))
    patch.delenv("SNOWMELT_SOCKET", raising=False)
    patch.setenv("SNOWMELT_BIN", binary)
    patch.setenv("SNOWMELT_PYTHON", sys.executable)
    _server._stop_at_exit()
    yield
    _server._stop_at_exit()
    patch.undo()


def interpreters() -> Iterator[tuple[str, str]]:
    """Version and path of interpreters of other versions on this machine."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [*sorted(versions.glob("3.*/bin")), *map(Path, os.get_exec_path())]
    for folder in folders:
        for path in sorted(folder.glob("python3.[1-9]*")):
            version = path.name.removeprefix("python")
            if not version[2:].isdigit() or int(version[2:]) < OLDEST or version == HERE:
                continue
            if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                yield version, str(path)


@pytest.fixture(scope="module")
def other() -> tuple[str, str]:
    found = next(interpreters(), None)
    if found is None:
        pytest.skip("this machine has one version of Python")
    return found


@pytest.mark.usefixtures("platform")
def test_a_function_runs_on_the_version_that_it_asks_for(
    other: tuple[str, str], tmp_path: Path
) -> None:
    version, _ = other
    minor = int(version.removeprefix("3."))
    module = imported(tmp_path, version)
    assert module.shown.remote("a") == [3, minor, "a"]
    # Instances and zygotes of both versions are kept beside each other.
    here = imported(tmp_path, HERE)
    assert here.shown.remote("b") == [3, sys.version_info.minor, "b"]
    assert module.shown.remote("c") == [3, minor, "c"]
    assert sm.map(module.shown, ["d"]) == [[3, minor, "d"]]


@pytest.mark.usefixtures("platform")
def test_sql_functions_of_one_file_run_on_several_versions(
    other: tuple[str, str], tmp_path: Path
) -> None:
    version, _ = other
    file = tmp_path / "udfs.py"
    file.write_text(
        "import sys\nimport snowmelt as sm\n"
        f"@sm.udf(python='{version}')\n"
        "def there(n: int) -> int:\n    return sys.version_info.minor + n\n"
        f"@sm.udf(python='{HERE}')\n"
        "def here(n: int) -> int:\n    return sys.version_info.minor + n\n"
    )
    expected = (int(version.removeprefix("3.")) + 1, sys.version_info.minor + 1)
    assert sm.sql("select there(1) as a, here(1) as b", udfs=[file]).rows() == [expected]


@pytest.mark.usefixtures("platform")
def test_a_client_of_another_version_is_served_by_its_own(other: tuple[str, str]) -> None:
    version, program = other
    text = (
        "import sys, snowmelt as sm\n"
        "def shown(event):\n    return list(sys.version_info[:2])\n"
        "print(sm.function(shown).remote(None))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(PACKAGE_FOLDER),
        "SNOWMELT_PYTHON": sys.executable,
    }
    done = subprocess.run([program, "-c", text], env=environment, capture_output=True, text=True)
    minor = version.removeprefix("3.")
    assert done.stdout == f"[3, {minor}]\n", done.stderr


@pytest.mark.usefixtures("platform")
def test_a_version_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "udfs.py"
    udf = "import snowmelt as sm\n@sm.udf\ndef same(n: int) -> int:\n    return n\n"
    block = "# /// script\n# requires-python = '{}'\n# ///\n"
    file.write_text(block.format(">=3.10") + udf)
    assert sm.sql("select same(7) as n", udfs=[file]).rows() == [(7,)]
    file.write_text(block.format(">=4") + udf)
    with pytest.raises(sm.PackageError, match="no interpreter for python>=4") as refused:
        sm.sql("select same(7) as n", udfs=[file]).collect()
    assert refused.value.code == "SM-0306"
    assert f"Python {HERE}" in refused.value.message
    with pytest.raises(sm.FunctionError, match="pickled by") as refused_pickle:
        sm.map(lambda n: n, [1], packages=["python<3.10"])
    assert refused_pickle.value.code == "SM-0204"
