"""Images built from packages and code: unchanged parts are neither read nor uploaded again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt, wait_for
from images import PYTHON, SERVE, Registry
from test_bursts import PYTHON as PACKAGE

from common.paths import SNOWMELT

# A wheel with one file and no dependencies.
WHEEL = "six==1.17.0"
BIG_MIB = 128


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "main.py").write_text("print('one')\n")
    return folder


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A function that starts only if the wheel is installed."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "serve").write_text(SERVE.replace("import hashlib", "import six, hashlib"))
    (folder / "serve").chmod(0o755)
    return folder


def built(snowmelt: Snowmelt, name: str, app: Path, *more: object) -> dict[str, Any]:
    parts = ("--debian", ",".join(PYTHON), "--python", WHEEL, "--code", app)
    done = snowmelt.run("image", "build", name, *parts, *more, "-o", "json").succeeded()
    return dict(json.loads(done.out))


def written(made: dict[str, Any]) -> list[str]:
    return [layer["name"] for layer in made["layers"] if layer["written"]]


def reads(snowmelt: Snowmelt, code: Path, image: str, path: str) -> str:
    command = ("--command", "./serve", "--timeout", "100s", "--image", image)
    snowmelt.run("fn", "deploy", "read", code, *command).succeeded()
    done = snowmelt.run("fn", "call", "read", "--data", json.dumps({"read": path})).succeeded()
    return str(json.loads(done.out))


def test_a_change_of_code_compresses_and_sends_only_the_code(
    alone: Snowmelt, served: Registry, app: Path, code: Path
) -> None:
    name = f"{served.address}/team/built:v1"
    settled(app)
    first = built(alone, "app:v1", app, "--push", name, "--entrypoint", "python3 /app/main.py")
    [debian, wheel, ours] = first["layers"]
    assert debian["name"] == "debian " + " ".join(PYTHON)
    assert (wheel["name"], ours["name"]) == ("python six 1.17.0", "code /app")
    assert len(written(first)) == 3 and len(first["sent"]["blobs"]) == 5
    before = reads(alone, code, "app:v1", "/app/main.py")

    (app / "main.py").write_text("print('another one')\n")
    settled(app)
    second = built(alone, "app:v1", app, "--push", name, "--entrypoint", "python3 /app/main.py")
    assert written(second) == ["code /app"]
    assert second["reused"] == 2
    assert second["layers"][:2] == [layer | {"written": False} for layer in first["layers"][:2]]
    code_digest = second["layers"][2]["digest"]
    # The layer of the code, the metadata part and the configuration.
    assert code_digest in second["sent"]["blobs"] and len(second["sent"]["blobs"]) == 3
    assert reads(alone, code, "app:v1", "/app/main.py") != before
    assert reads(alone, code, name, "/app/main.py") != before

    third = built(alone, "app:v1", app, "--push", name, "--entrypoint", "python3 /app/main.py")
    assert written(third) == [] and third["manifest"] == second["manifest"]
    assert third["sent"] == {"blobs": [], "bytes": 0}


# A program that returns its own environment.
SELF = """import os
def read(event):
    seen = {name: os.environ.get(name) for name in event["read"]}
    return seen | {"folder": os.getcwd(), "user": os.getuid(), "group": os.getgid()}
while True:"""


def test_function_settings_override_the_configuration_of_an_image(
    alone: Snowmelt, served: Registry, app: Path
) -> None:
    (app / "serve").write_text(SERVE.replace("while True:", SELF, 1))
    (app / "serve").chmod(0o755)
    settings = ("--entrypoint", "./serve", "--command", "unused", "--working-folder", "/app")
    settings += ("--env", "A=image", "--env", "B=image", "--env", "SNOWMELT_MEMORY=lie")
    settings += ("--user", "65532", "--python-path", "/opt/python")
    name = f"{served.address}/team/configured:v1"
    built(alone, "configured:v1", app, *settings, "--push", name)
    asked = json.dumps({"read": ["A", "B", "PYTHONPATH", "SNOWMELT_MEMORY", "HOME"]})
    for image in ("configured:v1", name):
        alone.run("fn", "deploy", "own", "--image", image, "--env", "B=function").succeeded()
        seen = json.loads(alone.run("fn", "call", "own", "--data", asked).succeeded().out)
        assert seen == {
            "A": "image",
            "B": "function",
            "PYTHONPATH": "/opt/python",
            "SNOWMELT_MEMORY": str(512 << 20),
            "HOME": "/tmp",
            "folder": "/app",
            "user": 65532,
            "group": 1000,
        }
    for wrong, told in (("--user=nobody-e2e", "nobody-e2e"), ("--working-folder=/none", "/none")):
        built(alone, "wrong:v1", app, "--entrypoint", "./serve", wrong)
        alone.run("fn", "deploy", "own", "--image", "wrong:v1").failed_with("SM-0206", told)
    built(alone, "silent:v1", app)
    silent = alone.run("fn", "deploy", "own", "--image", "silent:v1")
    silent.failed_with("SM-0206", "the function cannot be run: no command", "neither an entrypoint")


def test_python_in_an_image_runs_in_the_interpreter_of_the_image(
    alone: Snowmelt, app: Path, tmp_path: Path
) -> None:
    place = ("--python-path", "/opt/python")
    built(alone, "python:v1", app, *place, "--env", "A=image", "--working-folder", "/app")
    code = tmp_path / "handler.py"
    code.write_text(
        "import os, sys, six\n"
        "def handler(event):\n"
        "    if event.get('raise'):\n"
        "        raise ValueError('asked for')\n"
        "    return [sys.executable, six.__file__, os.getcwd(), os.environ['A'], __file__]\n"
    )
    deploy = ("fn", "deploy", "inside", code, "--image", "python:v1")
    alone.run(*deploy).succeeded()
    seen = json.loads(alone.run("fn", "call", "inside").succeeded().out)
    assert seen[:4] == ["/usr/bin/python3", "/opt/python/six.py", "/app", "image"]
    assert seen[4].endswith("handler.py")
    raised = alone.run("fn", "call", "inside", "--data", '{"raise": true}')
    raised.failed_with("SM-0201", "asked for")
    alone.run(*deploy, "--package", "six").failed_with("SM-0110", "image build")
    built_without = alone.run("image", "build", "bare:v1", "--code", app).succeeded()
    assert built_without.code == 0
    alone.run(*deploy[:-1], "bare:v1").failed_with("SM-0206", "python3", "bare:v1")


# Only the image has the words and the package.
WORDS = """import sys
import six
import snowmelt as sm

@sm.udf(packages=["no-such-package-e2e"])
def word(n: int) -> str:
    return f"{open('/app/words').read().split()[n]} {sys.executable} {six.__version__}"

@sm.udf(memory="300MiB")
def memory(n: int) -> str:
    import os
    return os.environ["SNOWMELT_MEMORY"]
"""
ASKED = """import sys
import snowmelt as sm

@sm.udf
def word(n: int) -> str:
    return open("/app/words").read().split()[n]

image, numbers = sys.argv[1:]
query = sm.sql("select word(n) from numbers order by n", numbers=numbers, image=image)
print([row[0] for row in query.rows()])
"""


def test_udfs_in_an_image_have_its_files_its_python_and_its_packages(
    alone: Snowmelt, served: Registry, app: Path, tmp_path: Path
) -> None:
    (app / "words").write_text("null one two")
    name = f"{served.address}/team/words:v1"
    built(alone, "words:v1", app, "--python", "pyarrow", "--push", name)
    built(alone, "bare:v1", app)
    numbers, code, asked = (tmp_path / name for name in ("n.parquet", "udfs.py", "asked.py"))
    pq.write_table(pa.table({"n": [2, 1]}), numbers)
    code.write_text(WORDS)
    asked.write_text(ASKED)
    sql = ("sql", f"select word(n) as w, memory(n) as m from '{numbers}' order by n")
    udf = (*sql, "--udf", code, "-o", "json", "--image")
    for image in ("words:v1", name):
        lines = alone.run(*udf, image).succeeded().out.splitlines()
        seen = [json.loads(line) for line in lines]
        assert [one["w"] for one in seen] == [
            f"{w} /usr/bin/python3 1.17.0" for w in ("one", "two")
        ]
        assert {one["m"] for one in seen} == {str(300 << 20)}
    alone.run(*udf, "words:v1", "--package", "six").failed_with("SM-0110", "image build")
    alone.run(*udf, "none:v1").failed_with("SM-1003", "none:v1")
    alone.run(*udf, "bare:v1").failed_with("SM-0204", "pyarrow", "image build")
    alone.run(*sql, "--image", "words:v1").failed_with("SM-0110", "--udf")
    environment = alone.environ() | {"PYTHONPATH": str(PACKAGE), "SNOWMELT_BIN": str(SNOWMELT)}
    command = [sys.executable, str(asked), "words:v1", str(numbers)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("['one', 'two']\n", 0), done.stderr


def test_system_libraries_of_wheels_are_added_or_reported(
    alone: Snowmelt, app: Path, tmp_path: Path
) -> None:
    numpy = ("--python", "numpy")
    made = built(alone, "numpy:v1", app, *numpy)
    assert "lacking" not in made
    code = tmp_path / "handler.py"
    code.write_text("import numpy\ndef handler(event):\n    return int(numpy.arange(4).sum())\n")
    alone.run("fn", "deploy", "sum", code, "--image", "numpy:v1").succeeded()
    assert json.loads(alone.run("fn", "call", "sum").succeeded().out) == 6
    parts = ("--code", app, *numpy, "-o", "json")
    done = alone.run("image", "build", "bare:v1", *parts).succeeded()
    lacking = {one["library"]: one for one in json.loads(done.out)["lacking"]}
    assert lacking["libstdc++.so.6"]["package"] == "libstdc++6"
    assert lacking["libstdc++.so.6"]["needed_by"] == "numpy"
    assert "SM-1007" in done.err and "--debian" in done.err
    # Libraries of the base are not reported.
    on = alone.run("image", "build", "on:v1", "--base", "numpy:v1", *parts).succeeded()
    assert "lacking" not in json.loads(on.out)


ALTERNATIVES = """
import ctypes, os, subprocess

def handler(event):
    ctypes.CDLL("libblas.so.3")
    counted = subprocess.check_output(["sh", "-c", "echo snow | grep -c snow"], text=True)
    return counted, os.readlink("/etc/alternatives/awk"), os.path.exists("/etc/passwd")
"""


def test_an_image_of_packages_has_the_essential_ones_and_alternatives(
    alone: Snowmelt, app: Path, tmp_path: Path
) -> None:
    packages = ",".join([*PYTHON, "libblas3", "ca-certificates"])
    parts = ("--debian", packages, "--code", app, "-o", "json")
    done = alone.run("image", "build", "shell:v1", *parts).succeeded()
    left = {one["package"]: one["commands"] for one in json.loads(done.out)["left_out"]}
    assert "update-ca-certificates" in left["ca-certificates"], left
    assert "SM-1008" in done.err and "ca-certificates (" in done.err
    code = tmp_path / "handler.py"
    code.write_text(ALTERNATIVES)
    alone.run("fn", "deploy", "shell", code, "--image", "shell:v1").succeeded()
    found = json.loads(alone.run("fn", "call", "shell").succeeded().out)
    assert found == ["1\n", "/usr/bin/mawk", True]


def test_an_image_built_on_another_shares_its_layers(
    alone: Snowmelt, served: Registry, app: Path, tmp_path: Path
) -> None:
    base = alone.run("image", "build", "base:v1", "--code", app, "-o", "json").succeeded()
    [layer] = json.loads(base.out)["layers"]
    name = f"{served.address}/team/base:v1"
    alone.run("image", "push", "base:v1", name).succeeded()
    model = tmp_path / "weights"
    model.mkdir()
    (model / "w").write_bytes(os.urandom(1 << 16))
    more = ("--model", f"{model}:/opt/weights", "--env", "A=1", "-o", "json")
    here = alone.run("image", "build", "a:v1", "--base", "base:v1", *more).succeeded()
    made = json.loads(here.out)
    assert [one["name"] for one in made["layers"]] == ["base", "model /opt/weights"]
    assert made["layers"][0]["digest"] == layer["digest"] and not made["layers"][0]["written"]
    shown = json.loads(alone.run("image", "inspect", "a:v1", "-o", "json").succeeded().out)
    assert shown["config"]["config"]["Env"] == ["A=1"]
    there = alone.run("image", "build", "b:v1", "--base", name, *more).succeeded()
    assert json.loads(there.out)["manifest"] == made["manifest"]
    alone.run("image", "verify", "b:v1").succeeded()


def test_build_errors_name_the_cause(alone: Snowmelt, app: Path, tmp_path: Path) -> None:
    build = ("image", "build", "app:v1")
    alone.run(*build).failed_with("SM-0110", "the image has no content", "--code")
    missing = tmp_path / "none"
    alone.run(*build, "--code", missing).failed_with("SM-0110", str(missing), "is not a folder")
    alone.run(*build, "--base", "none:v1.2.3@sha256:bad").failed_with("SM-0110")
    unknown = alone.run(*build, "--debian", "no-such-package-e2e", "--code", app)
    unknown.failed_with("SM-0301", "no-such-package-e2e", "apt-get update")
    option = alone.run(*build, "--debian=-oDir::Bin=x", "--code", app)
    option.failed_with("SM-0301", "-oDir::Bin=x")
    wheel = alone.run(*build, "--python", "snowmelt-no-such-package-e2e==1.0", "--code", app)
    wheel.failed_with("SM-0301", "snowmelt-no-such-package-e2e")
    assert json.loads(alone.run("image", "ls", "-o", "json").succeeded().out) == []
    assert not half_made(alone)


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_removes_partial_files(
    alone: Snowmelt, app: Path, tmp_path: Path, number: signal.Signals
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(os.urandom(BIG_MIB << 20))
    building = alone.start("image", "build", "app:v1", "--model", model)

    def is_writing() -> bool:
        try:
            # The folder of images has small files of its own, which are written before.
            return any(file.stat().st_size > 1 << 20 for file in half_made(alone))
        except FileNotFoundError:
            return False

    wait_for("a blob that is being written", is_writing)
    building.send_signal(number)
    done = alone.finish(building)
    if number == signal.SIGINT:
        done.failed_with("SM-0113", "cancelled")
        assert not half_made(alone), "it removes what it had begun"
    assert json.loads(alone.run("image", "ls", "-o", "json").succeeded().out) == []
    alone.run("image", "build", "other:v1", "--code", app).succeeded()
    assert not half_made(alone), "the next builder removes what a killed one had begun"


def half_made(snowmelt: Snowmelt) -> list[Path]:
    folder = snowmelt.folder / "state/images/.snowmelt/tmp"
    return list(folder.iterdir()) if folder.is_dir() else []


def settled(folder: Path) -> None:
    """Waits for the next tick of the kernel's clock for files: two changes within one tick cannot
    be distinguished."""
    probe = folder.parent / "probe"
    last = max(path.stat().st_ctime_ns for path in [folder, *folder.rglob("*")])

    def is_later() -> bool:
        probe.write_text("")
        return probe.stat().st_ctime_ns > last + 50_000_000

    wait_for("the clock for files", is_later)
