"""Values that functions refer to, without a platform."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import snowmelt as sm
from snowmelt import _broadcast, _files, _ship


def test_a_file_has_the_value_with_its_buffers_at_aligned_places(tmp_path: Path) -> None:
    array = np.arange(100_001, dtype=np.int64)
    value = {
        "array": array,
        "word": "snow",
        "empty": np.zeros(0),
        "bytes": pickle.PickleBuffer(b"x"),
    }
    made = sm.broadcast(value)
    assert made._path is not None and made.size == os.path.getsize(made._path)
    read = _broadcast._read(made._path)
    assert read["word"] == "snow" and (read["array"] == array).all() and read["empty"].size == 0
    assert read["array"].ctypes.data % 64 == 0 and bytes(read["bytes"]) == b"x"
    with pytest.raises(ValueError, match="read-only"):
        read["array"][0] = 1


def test_code_says_which_broadcasts_it_refers_to() -> None:
    first, second, unused = sm.broadcast(1), sm.broadcast([2]), sm.broadcast(3)
    code, found = _ship.pickled(lambda n: n + first.value + second.value[0], "f")
    assert {one._digest for one in found} == {first._digest, second._digest}
    assert unused._digest not in {one._digest for one in found}
    assert code["kind"] == "pickle"
    with pytest.raises(TypeError, match="not in items, events or results"):
        pickle.dumps(first)


def test_an_instance_reads_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sm.broadcast({"a": 1})
    assert made._path is not None
    folder = tmp_path / _files.BROADCASTS
    folder.mkdir()
    (folder / made._digest).write_bytes(Path(made._path).read_bytes())
    monkeypatch.setattr(_files, "_instance", True)
    monkeypatch.setattr(_files, "_folder", str(tmp_path))
    received = _broadcast._received(made._digest, made.size)
    assert received.value == {"a": 1}
    assert _broadcast._received(made._digest, made.size).value is received.value


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"something else")
    with pytest.raises(sm.Error, match="not a broadcast"):
        _broadcast._read(str(tmp_path / "f"))
