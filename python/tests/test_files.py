"""Files of functions: what instances see of them, and what is sent."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer import Instance, Refused, run_program

import snowmelt as sm
from snowmelt import _files

READS = """
    import os
    import helpers
    import snowmelt as sm

    @sm.udf
    def reads(n: int) -> str:
        return open("model.txt").read() + helpers.WORD + open(sm.file("data/a")).read()

    @sm.udf
    def missing(n: int) -> str:
        return sm.file("other.txt")

    @sm.udf
    def wrong(n: int) -> str:
        return sm.file("../outside")
"""

DECLARES = """
    import snowmelt as sm

    @sm.udf(files=["model.txt", "absent.bin"])
    def f(n: int) -> int:
        return n
"""


class Platform:
    """A client that keeps what is sent."""

    def __init__(self, has: set[str] | None = None) -> None:
        self.has = has or set()
        self.sent: dict[str, bytes] = {}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        assert method == "POST"
        if path == "/v1/files":
            return {"missing": [each for each in body["digests"] if each not in self.has]}
        pieces = []
        while sum(map(len, pieces)) < body.size:
            pieces.append(body.read(1 << 16))
        self.sent[path.rpartition("/")[2]] = b"".join(pieces)
        return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    (made / "data").mkdir(parents=True)
    (made / "model.txt").write_text("model ")
    (made / "helpers.py").write_text("WORD = 'word '\n")
    (made / "data" / "a").write_text("a")
    return made


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(values)})


def test_an_instance_has_its_files_beside_it(folder: Path, tmp_path: Path) -> None:
    started = Instance(tmp_path, SNOWMELT_FILES=str(folder))
    try:
        code = started.source(READS)
        assert started.udf(code, "reads", numbers(1)).to_pylist() == ["model word a"]
        with pytest.raises(Refused, match=r"it has data, helpers\.py, model\.txt"):
            started.udf(code, "missing", numbers(1))
        with pytest.raises(Refused, match="no part of it may be empty"):
            started.udf(code, "wrong", numbers(1))
        with pytest.raises(Refused, match=r"it declares the file absent\.bin"):
            started.open("describe", started.source(DECLARES))
    finally:
        started.stop()


def test_an_instance_without_files_has_none(own_instance: Instance) -> None:
    text = "import snowmelt as sm\ndef handler(event):\n    return sm.file('x')\n"
    with pytest.raises(Refused, match="none was given with files= or --file"):
        own_instance.call(own_instance.source(text), None)


def test_outside_of_the_platform_files_are_where_they_were_declared(folder: Path) -> None:
    program = f"""
import snowmelt as sm

@sm.udf(files={{"model": {str(folder / "model.txt")!r}, "d": {str(folder / "data")!r}}})
def f(n: int) -> str:
    return open(sm.file("model")).read() + open(sm.file("d/a")).read()

print(f(1))
try:
    sm.file("nothing")
except FileNotFoundError as error:
    print(error)
"""
    out = run_program(program).splitlines()
    assert out[0] == "model a"
    assert "'nothing'" in out[1]


def test_each_content_is_sent_once_and_only_if_it_is_missing(folder: Path) -> None:
    (folder / "copy").write_text("model ")
    platform: Any = Platform()
    files = _files.declared({"m.txt": folder / "model.txt", "c": folder / "copy", "d": folder})
    refs = _files.send(platform, files)
    assert refs["m.txt"] == refs["c"] == refs["d/copy"]
    assert set(refs) == {"m.txt", "c", "d/copy", "d/model.txt", "d/helpers.py", "d/data/a"}
    assert sorted(platform.sent.values()) == [b"WORD = 'word '\n", b"a", b"model "]
    again: Any = Platform(set(platform.sent))
    assert _files.send(again, files) == refs
    assert again.sent == {}
    assert _files.send(again, {".": str(folder / "data")}) == {"a": refs["d/data/a"]}


def test_what_cannot_be_sent_is_refused(folder: Path) -> None:
    platform: Any = Platform()

    def refused(files: Any) -> str:
        with pytest.raises(sm.FunctionError) as error:
            _files.send(platform, _files.declared(files))
        assert error.value.code == "SM-0230"
        return str(error.value)

    assert "cannot be read" in refused([folder / "none"])
    for name in ("../x", "/x", "a//b", "a\nb", "x" * 256):
        assert "cannot be named" in refused({name: folder / "model.txt"})
    both = {"d": folder / "model.txt", "d/e": folder / "copy"}
    (folder / "copy").write_text("")
    assert "also the folder" in refused(both)
    (folder / "data" / "link").symlink_to("/etc/passwd")
    assert "symbolic link" in refused([folder / "data"])
    os.mkfifo(folder / "pipe")
    assert "neither a file nor a folder" in refused([folder / "pipe"])
    with (folder / "large").open("wb") as large:
        large.truncate(_files.MAX_BYTES + 1)
    assert "larger than 4 GiB" in refused([folder / "large"])
    many = {str(number): folder / "model.txt" for number in range(1001)}
    assert "more than 1000 files" in refused(many)
    assert platform.sent == {}
    with pytest.raises(TypeError, match="write files="):
        sm.udf(files="model.txt")
    with pytest.raises(TypeError, match="twice"):
        _files.declared(["a/model", "b/model"])


def test_a_file_that_changes_before_it_is_sent_is_an_error(folder: Path) -> None:
    model = folder / "model.txt"

    class Changing(Platform):
        def call(self, method: str, path: str, body: Any = None) -> Any:
            # After the digest was computed.
            model.write_text("m")
            return super().call(method, path, body)

    platform: Any = Changing()
    with pytest.raises(sm.FunctionError, match="changed while it was read"):
        _files.send(platform, _files.declared([model]))


def test_a_function_is_pickled_without_its_files(folder: Path, own_instance: Instance) -> None:
    @sm.udf(files=[folder / "model.txt"], secrets={"KEY": "env:THE_KEY"})
    def f(n: int) -> int:
        return n + 1

    code = own_instance.pickled(f)
    assert own_instance.udf(code, "f", numbers(1)).to_pylist() == [2]
    assert str(folder).encode() not in Path(code).read_bytes()
