"""Functions in other languages: deployed, called, kept, prewarmed; errors of invalid ones."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, Snowmelt, wait_for
from programs import RUNTIMES, Language, build_go, language

LANGUAGES = ["node", "java", "go"]
SMALL = ("--memory", "192MiB")


@pytest.fixture(params=LANGUAGES)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Language:
    return language(request.param, tmp_path)


@pytest.fixture
def up(alone: Snowmelt) -> Iterator[Snowmelt]:
    """A running server."""
    alone.run("up").succeeded()
    yield alone
    alone.run("down").succeeded()


def ask(snowmelt: Snowmelt, name: str, /, **event: Any) -> Result:
    return snowmelt.run("fn", "call", name, "--data", json.dumps(event))


def answer(snowmelt: Snowmelt, name: str, /, **event: Any) -> Any:
    return json.loads(ask(snowmelt, name, **event).succeeded().out)


def show(snowmelt: Snowmelt, name: str) -> dict[str, Any]:
    return dict(json.loads(snowmelt.run("fn", "show", name, "-o", "json").succeeded().out))


def starts(snowmelt: Snowmelt) -> dict[str, int]:
    figures = json.loads(snowmelt.run("top", "-o", "json").succeeded().out)
    return {start["kind"]: sum(start["buckets"]) for start in figures["node"]["starts"]}


def test_is_deployed_called_kept_and_survives_a_restart(up: Snowmelt, written: Language) -> None:
    up.run("fn", "deploy", "f", *written.deploy).succeeded()
    assert answer(up, "f", do="x", name="ü")["event"] == {"do": "x", "name": "ü"}
    assert answer(up, "f", do="x")["calls"] == 2, "the instance was not taken again"
    shown = show(up, "f")
    assert (shown["runtime"], shown["instances"]) == (written.name, 1)
    assert ask(up, "f", do="print").succeeded().out == "null\n"
    assert f"printed by {written.name}" in up.run("fn", "logs", "f").succeeded().out
    up.run("down").succeeded()
    up.run("up").succeeded()
    assert answer(up, "f", do="x")["calls"] == 1
    up.run("fn", "rm", "f").succeeded()
    ask(up, "f").failed_with("SM-0220")


def test_is_prewarmed(up: Snowmelt, written: Language) -> None:
    up.run("fn", "deploy", "f", *written.deploy, "--prewarmed", 1, "--idle", "0s").succeeded()

    def is_prewarmed() -> bool:
        return int(json.loads(up.run("top", "-o", "json").out)["node"]["prewarmed"]) == 1

    for _ in range(2):
        wait_for("a prewarmed instance", is_prewarmed)
        assert answer(up, "f", do="x")["calls"] == 1
    assert starts(up)["prewarmed"] == 2


def test_is_deployed_and_called_from_python(up: Snowmelt, tmp_path: Path) -> None:
    file = language("node", tmp_path).deploy[0]
    program = f"""
import snowmelt as sm
f = sm.deploy("f", {str(file)!r}, memory="192MiB")
assert [one.get(60)["calls"] > 0 for one in f.spawn_map([{{"do": "x"}}] * 3)] == [True] * 3
assert sm.deployed("f").remote({{"do": "x"}})["event"] == {{"do": "x"}}
try:
    sm.deployed("f").remote({{"do": "raise"}})
except sm.FunctionError as error:
    assert error.code == "SM-0201" and "handler.mjs" in str(error)
try:
    sm.deployed("g")
except sm.FunctionError as error:
    print(error.code)
"""
    python = [sys.executable, "-c", program]
    # The package of this checkout, even if another one is installed.
    environment = up.environ() | {"PYTHONPATH": str(RUNTIMES.parent / "python")}
    done = subprocess.run(python, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "SM-0220\n"), done.stderr


@pytest.fixture
def deployed(snowmelt: Snowmelt, written: Language) -> Iterator[Callable[..., Result]]:
    """Calls a deployed function without a server."""
    limits = (*SMALL, "--timeout", "20s", "--open-files", 64, "--scratch", "8MiB")
    snowmelt.run("fn", "deploy", "bad", *written.deploy, *limits).succeeded()
    yield lambda **event: ask(snowmelt, "bad", **event)
    snowmelt.run("fn", "rm", "bad").succeeded()


def test_throws(deployed: Callable[..., Result], written: Language) -> None:
    report = deployed(do="raise").failed_with("SM-0201", *written.raised)
    assert report["input"].startswith("event = "), report
    assert report["location"]["file"] == written.raised[1]


def test_returns_an_invalid_json_value(deployed: Callable[..., Result]) -> None:
    deployed(do="function").failed_with("SM-0202", "not JSON")


def test_allocates_too_much_memory(deployed: Callable[..., Result]) -> None:
    report = deployed(do="eat").failed_with("SM-0213", "limit 192 MiB", "peak")
    assert "--memory" in report["hint"]


def test_ends_its_process(deployed: Callable[..., Result]) -> None:
    deployed(do="exit").failed_with("SM-0210", "exited with code 7")


def test_fills_its_scratch(deployed: Callable[..., Result]) -> None:
    report = deployed(do="fill").failed_with("SM-0215", "limit 8 MiB", "peak")
    assert "--scratch" in report["hint"]


def test_opens_files_without_limit(deployed: Callable[..., Result]) -> None:
    report = deployed(do="open").failed_with("SM-0216", "limit 64")
    assert "--open-files" in report["hint"]


def test_reaches_its_time_limit(snowmelt: Snowmelt, written: Language) -> None:
    snowmelt.run("fn", "deploy", "slow", *written.deploy, "--timeout", "3s").succeeded()
    ended = ask(snowmelt, "slow", do="hang")
    ended.failed_with("SM-0212", "3000 ms", "--timeout")
    assert ended.code == 124


def test_go_reports_an_error_with_its_cause(snowmelt: Snowmelt, tmp_path: Path) -> None:
    written = language("go", tmp_path)
    snowmelt.run("fn", "deploy", "go-error", *written.deploy).succeeded()
    report = ask(snowmelt, "go-error", do="error").failed_with("SM-0201", "cannot: file does not")
    assert report["excerpt"][-1].startswith("caused by"), report


@pytest.mark.parametrize(
    ("file", "text", "code", "parts"),
    [
        ("a.mjs", "export const other = 1;", "SM-0204", ["no function handler", "exports other"]),
        ("a.mjs", "export const = 1;", "SM-0204", ["SyntaxError"]),
        ("a.mjs", "throw new Error('at load');", "SM-0204", ["at load", "a.mjs"]),
        ("A.java", "public class A {}", "SM-0204", ["no public method handle"]),
        ("A.java", "public class B {}", "SM-0204", ["A.java"]),
        ("A.java", "public class A { x }", "SM-0204", ["error: ", "A.java"]),
    ],
)
def test_cannot_be_loaded(
    snowmelt: Snowmelt, tmp_path: Path, file: str, text: str, code: str, parts: list[str]
) -> None:
    language({"a.mjs": "node", "A.java": "java"}[file], tmp_path)
    (tmp_path / file).write_text(text)
    snowmelt.run("fn", "deploy", "f", tmp_path / file).failed_with(code, *parts)


def test_a_java_archive_is_loaded_by_its_class(snowmelt: Snowmelt, tmp_path: Path) -> None:
    language("java", tmp_path)
    source = tmp_path / "Deep.java"
    source.write_text(
        "package com.example; public class Deep {"
        " public static long handle(long event) { return event + 1; } }"
    )
    subprocess.run(["javac", "-d", tmp_path / "classes", source], check=True)
    folder = tmp_path / "app"
    folder.mkdir()
    jar = [shutil.which("jar") or "jar", "cf", folder / "deep.jar"]
    subprocess.run([*jar, "-C", tmp_path / "classes", "."], check=True)
    of = ("fn", "deploy", "deep", f"{folder}:com.example.Deep", "--runtime", "java")
    snowmelt.run(*of).succeeded()
    call = ("fn", "call", "deep", "--data")
    assert snowmelt.run(*call, "41").succeeded().out == "42\n"
    snowmelt.run(*call, '"x"').failed_with("SM-0202", "handle takes long")
    snowmelt.run(*call, "nul").failed_with("SM-0222")


def test_a_module_of_a_folder_imports_its_neighbours(snowmelt: Snowmelt, tmp_path: Path) -> None:
    language("node", tmp_path)
    (tmp_path / "app/node_modules/dep").mkdir(parents=True)
    (tmp_path / "app/node_modules/dep/index.js").write_text("module.exports.two = 2;")
    (tmp_path / "app/handler.mjs").write_text(
        'import { two } from "dep";\nexport const twice = (event) => event * two;\n'
    )
    app = f"{tmp_path / 'app'}:twice"
    snowmelt.run("fn", "deploy", "twice", app, "--runtime", "node").succeeded()
    assert snowmelt.run("fn", "call", "twice", "--data", "21").succeeded().out == "42\n"


# The smallest runtime: the protocol of docs/reference/runtimes.md in 20 lines.
OWN = """
import json, os, socket, struct, sys
listener = socket.socket(fileno=int(os.environ["SNOWMELT_CHANNEL_FD"]))
def exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data
while True:
    connected, _ = listener.accept()
    stream = connected.makefile("rwb")
    try:
        while True:
            length, kind = struct.unpack("<IB3x", exactly(stream, 8))
            message = json.loads(exactly(stream, length))
            if kind == 1:
                answer = (2, {"pid": os.getpid()})
            elif message["event"] == "fail":
                answer = (5, {"kind": "raised", "function": "own", "exception": "Own: failed"})
            elif message["event"] == "lie":
                answer = (77, {})
            else:
                answer = (4, [message["event"], sys.argv[1:]])
            text = json.dumps(answer[1]).encode()
            stream.write(struct.pack("<IB3x", len(text), answer[0]) + text)
            stream.flush()
    except EOFError:
        pass
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "serve").write_text("#!/usr/bin/python3\n" + OWN)
    (folder / "serve").chmod(0o755)
    (folder / "quiet").write_text("#!/bin/sh\necho gave up >&2\nexit 3\n")
    (folder / "quiet").chmod(0o755)
    (folder / "plain.txt").write_text("no program")
    return folder


def test_any_program_that_implements_the_protocol(snowmelt: Snowmelt, own: Path) -> None:
    command = "./serve --x 'a b' ./plain.txt"
    snowmelt.run("fn", "deploy", "own", own, "--command", command).succeeded()
    call = ("fn", "call", "own", "--data")
    said = json.loads(snowmelt.run(*call, '{"n": 1}').succeeded().out)
    assert said == [{"n": 1}, ["--x", "a b", "/run/snowmelt/code/plain.txt"]]
    snowmelt.run(*call, '"fail"').failed_with("SM-0201", "Own: failed")
    snowmelt.run(*call, '"lie"').failed_with("SM-0507", "77")
    assert show(snowmelt, "own")["command"][0] == "./serve"


@pytest.mark.parametrize(
    ("command", "code", "parts"),
    [
        ("no-such-program", "SM-0206", ["no-such-program", "/usr/bin"]),
        ("./no-such-file", "SM-0206", ["it has plain.txt, quiet, serve"]),
        ("./plain.txt", "SM-0206", ["chmod +x"]),
        ("/opt/no/such", "SM-0206", ["it is not in the root"]),
        ("bin/serve", "SM-0206", ["neither a name"]),
        ("./quiet", "SM-0210", ["exited with code 3", "gave up"]),
        ("'", "SM-0110", ["is not a command"]),
        ("", "SM-0110", ["is not a command"]),
    ],
)
def test_wrong_commands(
    snowmelt: Snowmelt, own: Path, command: str, code: str, parts: list[str]
) -> None:
    deployed = snowmelt.run("fn", "deploy", "wrong", own, "--command", command)
    deployed.failed_with(code, *parts)


def test_wrong_paths(snowmelt: Snowmelt, own: Path) -> None:
    deploy = ("fn", "deploy", "wrong")
    snowmelt.run(*deploy, own / "none.mjs").failed_with("SM-0110", "none.mjs")
    snowmelt.run(*deploy, own).failed_with("SM-0110", "--runtime")
    snowmelt.run(*deploy, own, "--runtime", "node").failed_with("SM-0206", "handler.mjs")
    root = ("--command", "./serve", "--root")
    snowmelt.run(*deploy, own, *root, own / "none").failed_with("SM-0110", "none")
    snowmelt.run(*deploy, own, *root, own / "serve").failed_with("SM-0110", "is not a folder")
    (own / "empty").mkdir()
    snowmelt.run(*deploy, own / "empty", "--runtime", "go").failed_with("SM-0110", "empty")
    (own / "hello.py").write_text("def handler(event): return 1")
    snowmelt.run(*deploy, own / "hello.py", "--root", own).failed_with("SM-0206", "python3")


def test_a_program_in_an_image_sees_the_image_only(snowmelt: Snowmelt, tmp_path: Path) -> None:
    go = language("go", tmp_path)
    image = tmp_path / "image"
    (image / "opt").mkdir(parents=True)
    (image / "etc").mkdir()
    (image / "etc/os-release").write_text("ID=tiny\n")
    (image / "usr/bin").mkdir(parents=True)
    shutil.copy(go.deploy[0], image / "usr/bin/serve")
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "data").write_text("x")
    command = ("--command", "serve", "--root", image)
    snowmelt.run("fn", "deploy", "tiny", folder, *command, "--prewarmed", 1).succeeded()
    assert answer(snowmelt, "tiny", do="x")["calls"] == 1
    missing = snowmelt.run("fn", "deploy", "tiny", folder, "--command", "sh", "--root", image)
    missing.failed_with("SM-0206", "put it into the image")
    assert sorted(path.name for path in image.iterdir()) == ["etc", "opt", "usr"]


@pytest.mark.parametrize("name", ["python", *LANGUAGES])
def test_a_new_folder_is_deployed_with_its_own_command(
    snowmelt: Snowmelt, tmp_path: Path, name: str
) -> None:
    if name != "python":
        language(name, tmp_path)
    folder = tmp_path / "hello"
    made = snowmelt.run("fn", "new", folder, "--runtime", name).succeeded()
    if name == "go":
        build_go(folder)
    line = next(line for line in made.err.splitlines() if "fn deploy" in line)
    snowmelt.run(*line.split()[1:], cwd=folder).succeeded()
    assert answer(snowmelt, "hello", name="Ada") == {"hello": "Ada"}
    snowmelt.run("fn", "new", folder, "--runtime", name).failed_with("SM-0110", "hello")


def test_reports_why_a_call_was_cold(up: Snowmelt, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(
        "import os\ndef handler(event):\n    print('called')\n"
        "    if event.get('exit'): os._exit(1)\n"
    )
    up.run("fn", "deploy", "f", tmp_path / "f.py", "--idle", "1s").succeeded()
    wait_for("its idle time to be over", lambda: show(up, "f")["instances"] == 0)
    said = up.run("--progress", "plain", "fn", "call", "f").succeeded().err
    assert "cold: the idle time of 1 s was over" in said and "--idle" in said
    assert "cold: the idle time of 1 s was over" in up.run("fn", "logs", "f").out
    assert "1 idle" in up.run("top", "--once").out
    ask(up, "f", exit=True).failed_with("SM-0210")
    assert "cold: the one before ended with SM-0210" in ask(up, "f").succeeded().err


def test_a_source_file_is_inspected_once(alone: Snowmelt, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def handler(event):\n    return 1\n")
    alone.run("fn", "deploy", "f", tmp_path / "f.py").succeeded()
    known = set((alone.folder / "state/known").iterdir())
    # What is found again is written to a new file. The time of a file is that of its last use.
    files = {path: path.stat().st_ino for path in known}
    with next(iter(known)).open():
        assert alone.run("fn", "call", "f").succeeded().out == "1\n"
        assert {path: path.stat().st_ino for path in known} == files
    assert len(known) == 1 and known.pop().stat().st_size > 0
