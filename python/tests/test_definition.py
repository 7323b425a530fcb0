"""The code of a CREATE FUNCTION: a body or a module, with the lines and texts of the statement."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from snowmelt import _names
from snowmelt._elements import Element
from snowmelt._runtime import code
from snowmelt._runtime.failure import Failed
from snowmelt._signature import Signature
from snowmelt._udf import AnyUdf

FILE = "CREATE FUNCTION f"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def signature(**arguments: Any) -> Signature:
    elements = tuple(
        (name, Element("int", kind, nullable=name == "n")) for name, kind in arguments.items()
    )
    return Signature("f", "scalar", elements, Element("int", pa.int64()), memory="1GiB")


def load(folder: Path, text: str, *, indented: bool = False, **arguments: Any) -> AnyUdf:
    wire = signature(**(arguments or {"x": pa.int64()})).to_wire()
    given = {"kind": "definition", "file": FILE, "text": text, "signature": wire}
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({**given, "indented": indented}))
    found: AnyUdf = code.load(str(path), "f").callable("f")
    return found


def refusal(folder: Path, text: str, **more: Any) -> dict[str, Any]:
    with pytest.raises(Failed) as failed:
        load(folder, text, **more)
    return failed.value.message


def test_a_body_becomes_the_function(tmp_path: Path) -> None:
    found = load(tmp_path, "\n\ny = x + 1\nreturn y * n\n", x=pa.int32(), n=pa.int16())
    assert found(2, 3) == 9
    wire = found.signature.to_wire()
    assert wire == signature(x=pa.int32(), n=pa.int16()).to_wire()
    assert wire["memory"] == "1GiB"


def test_texts_in_an_indented_body_stay_as_they_are(tmp_path: Path) -> None:
    text = 'if True:\n    t = """a\n  b\nc"""\n    return t\n  '
    assert load(tmp_path, text, indented=True)(1) == "a\n  b\nc"


def test_a_body_may_have_functions_and_a_variable_of_its_own_name(tmp_path: Path) -> None:
    text = "def f(y):\n    return y + 1\nfor f in [f(x)]:\n    return f\n"
    assert load(tmp_path, text)(1) == 2


@pytest.mark.parametrize(
    "text",
    [
        "import math\n\ndef helper(x): return math.floor(x)\n\ndef f(x): return helper(x)\n",
        "try:\n    import none_such\nexcept ImportError:\n    pass\ndef f(a: str) -> bytes: return a\n",
        "from functools import partial\nf = partial(int.__add__, 0)\n",
        "if True:\n  def f(x): return x\n",
    ],
)
def test_a_module_defines_the_function(tmp_path: Path, text: str) -> None:
    found = load(tmp_path, text)
    assert found(4) == 4
    assert found.signature == load(tmp_path, "return x").signature


def test_the_module_of_an_indented_statement(tmp_path: Path) -> None:
    text = "if True:\n  import math\n  def f(x):\n    return math.floor(x)\n"
    assert load(tmp_path, text, indented=True)(4.5) == 4


def test_errors_have_the_lines_of_the_statement(tmp_path: Path) -> None:
    failure = refusal(tmp_path, "\n\n\nimport none_such\ndef f(x): return x\n")
    assert failure["location"] == {"file": FILE, "line": 4, "within": "<module>"}
    assert failure["kind"] == "load"
    assert "import none_such" in failure["traceback"]
    failure = refusal(tmp_path, "\n\nreturn (x\n")
    assert failure["location"]["line"] == 3
    found = load(tmp_path, "if True:\n\n  return 1 // x\n", indented=True)
    with pytest.raises(ZeroDivisionError) as raised:
        found(0)
    assert raised.traceback[-1].lineno + 1 == 3


def test_code_that_can_have_no_value_is_refused(tmp_path: Path) -> None:
    for text in ["", "x + 1\n", "def g(x): return x\n", "class C:\n    def f(self): return 1\n"]:
        assert "neither returns" in refusal(tmp_path, text)["exception"], text
    assert "is not a function" in refusal(tmp_path, "f = 3\n")["exception"]
    decorated = "import snowmelt as sm\n@sm.udf\ndef f(x: int) -> int:\n    return x\n"
    assert "@sm.udf" in refusal(tmp_path, decorated)["exception"]


def test_arguments_that_python_cannot_name_are_refused(tmp_path: Path) -> None:
    for name in ["class", "a b", "1"]:
        failure = refusal(tmp_path, "return 1", **{name: pa.int64()})
        assert failure["kind"] == "signature" and repr(name) in failure["exception"]


def test_a_type_that_functions_do_not_have_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "return 1", x=pa.month_day_nano_interval())["kind"] == "signature"


def test_definitions_are_told_by_their_beginning() -> None:
    for sql in ["create function f() …", "\n-- select\n/* x */ DROP function f", "Create\tx"]:
        assert _names.defines(sql)
    for sql in ["select 'create'", "created", "-- create", "", "with drop as (select 1) select 1"]:
        assert not _names.defines(sql)
