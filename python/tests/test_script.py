"""The function that runs a shell script, without a platform."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RUNNER = Path(__file__).parents[2] / "runtimes/shell/snowmelt_script.py"

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a script with an event."""

    def run(script: str, event: Any = {}, shell: str = "/bin/sh") -> Any:  # noqa: B006
        runner = tmp_path / RUNNER.name
        runner.write_text(RUNNER.read_text())
        (tmp_path / "my script.sh").write_text(script)
        given = {"script": "my script.sh", "interpreter": [shell], "secrets": []}
        (tmp_path / "snowmelt_script.json").write_text(json.dumps(given))
        spec = importlib.util.spec_from_file_location("snowmelt_script", runner)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.shell_script(event)

    return run


def test_stdin_is_the_event_and_stdout_the_result(run: Run) -> None:
    assert run("cat", {"n": 3}) == {"n": 3}
    assert run("cat", "plain\ntext") == "plain\ntext"
    assert run("wc -l", None) == 1
    assert run("echo '[1, 2]'") == [1, 2]
    assert run("echo one; echo two") == "one\ntwo"
    assert run("true") == ""
    assert run("echo NaN") == "NaN"


def test_the_elements_of_a_list_are_arguments(run: Run) -> None:
    script = 'for one in "$@"; do echo "<$one>"; done; cat'
    assert run(script, ["a b", 3, None, {"k": 1}]) == '<a b>\n<3>\n<null>\n<{"k": 1}>'


def test_a_script_that_fails_says_its_exit_code_and_the_end_of_stderr(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exception, match=r"my script.sh ended with exit code 3: no such month$"):
        run("echo 'no such month' >&2; exit 3")
    assert capfd.readouterr().err == "no such month\n"
    with pytest.raises(Exception, match="ended by signal 9"):
        run("kill -9 $$")
    with pytest.raises(Exception, match=r"exit code 1: .*the end$") as failed:
        run("head -c 300000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 1")
    assert len(str(failed.value)) < 2100
    with pytest.raises(Exception, match="not UTF-8"):
        run("printf '\\377'")


def test_a_script_need_not_read_its_input_and_may_print_while_it_does(run: Run) -> None:
    long = "x" * (1 << 20)
    assert run("exec 0<&-; echo done", long) == "done"
    assert run("cat", long) == long
