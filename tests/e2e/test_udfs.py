"""`snowmelt udf`: functions that SQL calls by name, their versions, and wrong input."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Snowmelt

SCORE = """
import snowmelt as sm

@sm.udf
def score(a: float, b: float | None) -> float:
    return a * {factor} + (b or 0.0)

@sm.udf
def grade(n: int) -> str:
    return "high" if n > 2 else "low"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "score.py"
    path.write_text(SCORE.format(factor=2))
    return path


def test_a_registered_function_needs_no_file(alone: Snowmelt, file: Path) -> None:
    alone.run("up").succeeded()
    added = alone.run("udf", "add", file, "--test", "score(1.5, 0.5)").succeeded()
    assert added.out.splitlines() == [
        "score(a DOUBLE, b DOUBLE NULL) DOUBLE version 1",
        "grade(n BIGINT) VARCHAR version 1",
    ]
    assert "score(1.5, 0.5) = 3.5" in added.err
    rows = alone.rows("select Score(2, null) s, grade(3) g, upper('x') u")
    assert rows == [{"s": 4.0, "g": "high", "u": "X"}]
    assert alone.run("udf", "test", "score", "1", "-1.5").succeeded().out == "0.5\n"
    # Another version, which the next queries call, also after a restart.
    file.write_text(SCORE.format(factor=10))
    alone.run("udf", "add", file).succeeded()
    alone.run("down").succeeded()
    alone.run("up").succeeded()
    assert alone.rows("select score(2, 1) s") == [{"s": 21.0}]
    shown = alone.run("udf", "show", "SCORE").succeeded().out
    assert "version      2" in shown and "kept         1 2" in shown
    # What a query brings along goes before what is registered.
    file.write_text(SCORE.format(factor=100))
    assert alone.rows("select score(2, 1) s", "--udf", file) == [{"s": 201.0}]
    listed = alone.run("udf", "ls", "-o", "csv").succeeded().out.splitlines()
    assert [line.split(",")[0] for line in listed] == ["name", "grade", "score"]
    alone.run("udf", "rm", "score").succeeded()
    assert alone.sql("select score(2, 1)").code == 1
    alone.run("udf", "test", "score", "1").failed_with("SM-0220")
    alone.run("down").succeeded()


def test_nothing_is_registered_of_code_that_fails(alone: Snowmelt, file: Path) -> None:
    alone.run("up").succeeded()
    file.write_text(SCORE.format(factor=2) + "\nraise RuntimeError('at import')\n")
    alone.run("udf", "add", file).failed_with("SM-0204", "at import")
    file.write_text(
        SCORE.format(factor=2) + "\n@sm.udf\ndef bad(x: complex) -> int:\n    return 1\n"
    )
    alone.run("udf", "add", file).failed_with("SM-0205")
    file.write_text(SCORE.format(factor=2))
    alone.run("udf", "add", file, "--test", "score('text', 1)").failed_with("SM-0103")
    file.write_text("x = 1\n")
    alone.run("udf", "add", file).failed_with("SM-0204", "defines no function")
    assert alone.run("udf", "ls").succeeded().out == ""
    alone.run("udf", "rm", "score").failed_with("SM-0220", "no function `score` is registered")
    alone.run("down").succeeded()


def test_old_versions_are_dropped(alone: Snowmelt, file: Path) -> None:
    alone.run("up").succeeded()
    for factor in range(20):
        file.write_text(SCORE.format(factor=factor))
        alone.run("udf", "add", file).succeeded()
    shown = alone.run("udf", "show", "score").succeeded().out
    assert f"kept         {' '.join(map(str, range(5, 21)))}\n" in shown
    assert alone.rows("select score(1, 0) s") == [{"s": 19.0}]
    alone.run("down").succeeded()


def test_an_embedded_platform_keeps_what_is_registered(alone: Snowmelt, file: Path) -> None:
    alone.run("udf", "add", file).succeeded()
    assert alone.rows("select score(2, 1) s") == [{"s": 5.0}]


def test_a_query_chooses_the_python_of_all_its_functions(
    snowmelt: Snowmelt, udf_file: Callable[[str], Path]
) -> None:
    code = udf_file(
        "import sys\n\n@sm.udf\ndef minor(n: int) -> int:\n    return sys.version_info.minor"
    )
    query = ("select minor(1) as minor", "--udf", code)
    found = snowmelt.rows(*query)
    chosen = f"3.{found[0]['minor']}"
    assert snowmelt.rows(*query, "--python", chosen) == found
    snowmelt.environment["UV_PYTHON_DOWNLOADS"] = "never"
    snowmelt.sql(*query, "--python", "3.1").failed_with("SM-0306", "3.1")
    snowmelt.sql(*query, "--python", chosen, "--image", "none:v1").failed_with("SM-0110")
