"""What functions print appears on stderr of their caller."""

from typing import Any

import pytest

from snowmelt import _prints
from snowmelt._function import Deployed
from snowmelt._prints import Prints
from snowmelt._query import _show
from snowmelt.errors import Error


class Answers:
    """A platform that answers calls."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def call(self, *_: Any) -> Any:
        return self._answers.pop(0)


@pytest.fixture(autouse=True)
def default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_prints.VARIABLE, raising=False)


def test_a_call_shows_what_it_printed_even_if_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    report = {"code": "SM-0201", "message": "`f` raised", "retryable": False}
    platform = Answers(
        {"result": 3, "printed": "one\ntwo\n"}, {"error": report, "printed": "last words\n"}
    )
    deployed = Deployed(platform, "f-0123", shown="f")  # type: ignore[arg-type]
    assert deployed.remote(None) == 3
    assert capsys.readouterr() == ("", "f: one\nf: two\n")
    with pytest.raises(Error):
        deployed.remote(None)
    assert capsys.readouterr().err == "f: last words\n"


def test_each_call_of_a_batch_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [{"result": number, "printed": f"{number}\n"} for number in (1, 2)]
    deployed = Deployed(Answers(answers), "f")  # type: ignore[arg-type]
    first, second = deployed.spawn_map([None, None])
    assert [first.get(), first.get(), second.get()] == [1, 1, 2]
    assert capsys.readouterr().err == "f: 1\nf: 2\n"


def test_the_text_is_bounded_and_cannot_act_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prints = Prints(True, most=3)
    prints.show("f", "\x1b[2Jcleared\n")
    prints.show("f", "b\nc\nd\ne\n")
    prints.show("f", "g\n")
    assert capsys.readouterr().err.splitlines() == [
        "f: \u00b7[2Jcleared",
        "f: b",
        "f: c",
        "f: \u2026 more is not shown",
    ]
    prints = Prints(True)
    prints.show("f", "x" * 100_000)
    assert len(capsys.readouterr().err) < 3_000


def test_queries_show_it_without_a_progress_line(capsys: pytest.CaptureFixture[str]) -> None:
    from snowmelt import _progress

    event = {"event": "printed", "function": "score", "text": "a\nb\n"}
    _show(_progress.Line(False), Prints(True), event)
    assert capsys.readouterr().err == "score: a\nscore: b\n"


@pytest.mark.parametrize("off", ["0", "off", "False"])
def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    assert _prints.enabled() and not _prints.enabled(False)
    monkeypatch.setenv(_prints.VARIABLE, off)
    assert not _prints.enabled() and _prints.enabled(True)
