"""The request that `sm.deploy` sends for a path, and paths that it refuses before any request."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import snowmelt as sm
from snowmelt import _program


def test_a_folder_travels_with_its_programs(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.txt").write_bytes(b"\xff")
    (tmp_path / "serve").write_text("#!")
    (tmp_path / "serve").chmod(0o755)
    spec = _program._code(tmp_path, None, "./serve 'a b'", tmp_path)
    assert (spec["runtime"], spec["command"]) == ("command", ["./serve", "a b"])
    assert spec["root"] == str(tmp_path)
    text = base64.b64encode(b"\xff").decode()
    assert spec["code"]["files"]["lib/a.txt"] == {"data": text, "executable": False}
    assert spec["code"]["files"]["serve"]["executable"] is True


@pytest.mark.parametrize(
    ("name", "runtime"), [("a.mjs", "node"), ("a.jar", "java"), ("a.py", "python")]
)
def test_the_file_ending_selects_the_runtime(tmp_path: Path, name: str, runtime: str) -> None:
    (tmp_path / name).write_text("text")
    spec = _program._code(tmp_path / name, None, None, None)
    assert spec["runtime"] == runtime and "root" not in spec
    assert spec["code"]["kind"] == ("source" if runtime == "python" else "files")


def test_invalid_deployments_are_refused_before_any_request(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "up").symlink_to(tmp_path)
    refused: list[tuple[str, Any, dict[str, Any]]] = [
        ("the runtime of .*empty is unknown", tmp_path / "empty", {}),
        ("empty is empty", tmp_path / "empty", {"runtime": "go"}),
        ("unknown runtime ruby", tmp_path / "empty", {"runtime": "ruby"}),
        ("cannot be combined", tmp_path / "empty", {"runtime": "go", "command": "x"}),
        ("none.mjs cannot be read", tmp_path / "none.mjs", {}),
        ("link to a folder", tmp_path / "loop", {"runtime": "node"}),
    ]
    refused += [
        ("either code or a code package", tmp_path / "empty", {"packed": "app:v1"}),
        ("determines its own runtime", None, {"packed": "app:v1", "runtime": "python"}),
    ]
    for reason, path, more in refused:
        with pytest.raises(sm.QueryError, match=reason) as error:
            sm.deploy("f", path, **more)
        assert error.value.code == "SM-0110"
