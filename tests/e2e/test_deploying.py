"""Deploying code as developers have it: a folder, variables in a file, secrets, async handlers."""

import json
from pathlib import Path
from typing import Any

from conftest import Snowmelt

APP = """
import asyncio
from pathlib import Path

import snowmelt as sm
from jobs.nightly import total

async def handler(event):
    await asyncio.sleep(0)
    greeting = (Path(__file__).parent / "data/greeting.txt").read_text()
    return {"total": total(event["numbers"]), "greeting": greeting}

def numbers(event):
    yield from range(event["n"])

def secret(event):
    print("it is", sm.secret("API_KEY"))
    return sm.secret("API_KEY")[::-1]
"""
NIGHTLY = """
import os
import six

def total(numbers):
    return [sum(numbers), six.__name__, os.environ["MODE"]]

def fails(event):
    raise ValueError("as asked")
"""


def _app(folder: Path) -> Path:
    files = {
        "app.py": APP,
        "jobs/nightly.py": NIGHTLY,
        "data/greeting.txt": "hello",
        "requirements.txt": "six\n",
        ".venv/pyvenv.cfg": "",
    }
    for name, text in files.items():
        path = folder / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "app.env").write_text("# of the app\nMODE=from-file\nTOKEN='s3cret'\n")
    return folder / "app"


def _call(snowmelt: Snowmelt, name: str, event: Any) -> Any:
    asked = snowmelt.run("fn", "call", name, "--data", json.dumps(event))
    return json.loads(asked.succeeded().out)


def test_a_folder_is_deployed_with_its_modules_packages_and_variables(
    alone: Snowmelt, tmp_path: Path
) -> None:
    app = _app(tmp_path)
    variables = ("--env-file", tmp_path / "app.env")
    alone.run("fn", "deploy", "app", app, *variables).succeeded()
    answer = _call(alone, "app", {"numbers": [1, 2]})
    assert answer == {"total": [3, "six", "from-file"], "greeting": "hello"}
    # Values are shown on request only.
    shown = alone.run("fn", "show", "app").succeeded().out
    assert "MODE=*** TOKEN=***" in shown
    for listed in (("fn", "show", "app"), ("fn", "ls")):
        assert "s3cret" not in alone.run(*listed, "-o", "json").succeeded().out
    assert "TOKEN=s3cret" in alone.run("fn", "show", "app", "--values").succeeded().out
    alone.run("fn", "deploy", "many", f"{app}:numbers", *variables).succeeded()
    assert _call(alone, "many", {"n": 3}) == [0, 1, 2]
    alone.run("fn", "deploy", "bad", f"{app}:jobs.nightly:fails", *variables).succeeded()
    report = alone.run("fn", "call", "bad").failed_with("SM-0201", "as asked")
    assert report["location"]["file"] == "jobs/nightly.py"


def test_a_deployed_function_has_its_secrets(alone: Snowmelt, tmp_path: Path) -> None:
    folder = alone.folder / "secrets/default"
    folder.mkdir(parents=True)
    (folder / "key").write_text("hunter2-of-the-app\n")
    alone.environment = {"SNOWMELT_SECRETS": str(folder.parent)}
    secret = ("--secret", "API_KEY=file:key", "--env", "MODE=x")
    alone.run("fn", "deploy", "keyed", f"{_app(tmp_path)}:secret", *secret).succeeded()
    assert _call(alone, "keyed", None) == "hunter2-of-the-app"[::-1]
    assert "API_KEY=file:key" in alone.run("fn", "show", "keyed").succeeded().out
    assert "it is ***" in alone.run("fn", "logs", "keyed").succeeded().out
    alone.run("fn", "deploy", "none", f"{tmp_path / 'app'}:secret", "--env", "MODE=x").succeeded()
    alone.run("fn", "call", "none").failed_with("SM-0201", "no secret API_KEY")


def test_a_shell_script_is_a_function(alone: Snowmelt, tmp_path: Path) -> None:
    script = tmp_path / "report.sh"
    script.write_text('#!/bin/sh\nif [ $# -gt 0 ]; then echo "$# $1" >&2; exit 4; fi\nsed s/3/4/\n')
    alone.run("up").succeeded()
    try:
        alone.run("fn", "deploy", "report", script).succeeded()
        done = alone.run("fn", "call", "report", "--data", '{"month": 3}').succeeded()
        assert json.loads(done.out) == {"month": 4}
        failed = alone.run("fn", "call", "report", "--data", '["--year", 7]')
        assert failed.report["code"] == "SM-0201"
        assert "report.sh ended with exit code 4: 2 --year" in failed.report["message"]
        assert "snowmelt_script" not in failed.err, "the platform's own frames are not shown"
        assert "2 --year" in alone.run("fn", "logs", "report").succeeded().out
        refused = alone.run("fn", "deploy", "report", f"{script}:main")
        assert refused.report["code"] == "SM-0110"
    finally:
        alone.run("down")
