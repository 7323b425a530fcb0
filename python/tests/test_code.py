"""Code files in a process of the platform: each is read, compiled and executed once."""

import base64
import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from snowmelt._runtime import code
from snowmelt._runtime.failure import Failed

RAN: list[str] = []


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    RAN.clear()
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, text: str, **more: Any) -> str:
    path = folder / "code.json"
    path.write_text(json.dumps({"kind": "source", "file": "mine.py", "text": text} | more))
    return str(path)


def test_prefetched_code_is_executed_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, f"from {__name__} import RAN\nRAN.append('it')\ndef f(): return 7\n")
    code.prefetch(path)
    assert RAN == []
    # It is not read a second time.
    Path(path).unlink()
    assert code.load(path, "f").callable("f")() == 7
    assert code.load(path, "f").callable("f")() == 7
    assert RAN == ["it"]


def test_errors_of_prefetching_are_ignored(tmp_path: Path) -> None:
    code.prefetch(str(tmp_path / "none"))
    broken = tmp_path / "broken"
    broken.write_text("{")
    code.prefetch(str(broken))
    for number, text in enumerate(["def f(:\n", "(" * 10_000]):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = write(folder, text)
        code.prefetch(path)
        with pytest.raises(Failed) as failed:
            code.load(path, "f")
        assert failed.value.message["kind"] == "load"
        assert "Error" in failed.value.message["exception"]
    path = write(tmp_path, "def f(): return 8\n")
    code.prefetch(path)
    code.preload(path)
    assert code.load(path, "f").callable("f")() == 8


def test_a_pickled_object_is_prefetched_and_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "code.json"
    data = base64.b64encode(pickle.dumps(Marks())).decode()
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    path.write_text(json.dumps({"kind": "pickle", "python": here, "data": data}))
    code.prefetch(str(path))
    assert RAN == []
    assert code.load(str(path), "len").callable("len")("abc") == 3
    assert RAN == ["made"]


class Marks:
    """Is unpickled as a function."""

    def __reduce__(self) -> Any:
        return mark, ()


def mark() -> Any:
    RAN.append("made")
    return len


@pytest.mark.parametrize(
    ("signature", "takes"),
    [
        ("()", "no argument"),
        ("(*, event)", "no argument"),
        ("(event, context)", "2 arguments"),
        ("(a, b, *rest)", "2 arguments"),
        ("(event, *, context)", "the keyword context"),
    ],
)
def test_a_handler_that_cannot_be_called_with_an_event_is_refused(
    tmp_path: Path, signature: str, takes: str
) -> None:
    loaded = code.load(write(tmp_path, f"def f{signature}: return 1\n"), "f")
    with pytest.raises(Failed) as failed:
        code.takes_one(loaded.callable("f"), "f", loaded.file)
    assert failed.value.message["kind"] == "load"
    assert f"`f` in mine.py takes {takes}" in failed.value.message["exception"]


@pytest.mark.parametrize(
    "text",
    [
        "def f(event): pass",
        "def f(*all): pass",
        "def f(event, context=None, *, more=1): pass",
        "def f(event=None, /): pass",
        "class C:\n    def g(self, event): pass\nf = C().g",
        "class C:\n    def __call__(self, event): pass\nf = C()",
        "import functools\nf = functools.partial(lambda a, b: a, 1)",
        "f = len",
    ],
)
def test_a_handler_with_one_parameter_is_accepted(tmp_path: Path, text: str) -> None:
    loaded = code.load(write(tmp_path, text + "\n"), "f")
    code.takes_one(loaded.callable("f"), "f", loaded.file)
