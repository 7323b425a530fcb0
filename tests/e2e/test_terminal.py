"""The output of commands on a terminal of 80 columns, and their keys."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from conftest import Snowmelt

from common.paths import SNOWMELT

COLUMNS = 80


@dataclass
class Terminal:
    """A command on a terminal, and its output so far."""

    process: subprocess.Popen[bytes]
    descriptor: int
    shown: str = ""

    def until(self, words: str, seconds: float = 60) -> str:
        """Reads until the output contains the words."""
        deadline = time.monotonic() + seconds
        while words not in self.shown:
            assert time.monotonic() < deadline, f"waited for {words!r} in {self.shown!r}"
            if not self._read(0.2) and self.process.poll() is not None:
                pytest.fail(f"ended with {self.process.returncode}: {self.shown!r}")
        return self.shown

    def rest(self) -> str:
        """The complete output, once the command has ended."""
        while self._read(0.2) or self.process.poll() is None:
            pass
        return self.shown

    def _read(self, seconds: float) -> bool:
        if not select.select([self.descriptor], [], [], seconds)[0]:
            return False
        try:
            self.shown += os.read(self.descriptor, 1 << 16).decode(errors="replace")
        except OSError:
            # The other end is closed.
            self.process.wait()
            return False
        return True


@contextmanager
def on_terminal(snowmelt: Snowmelt, *arguments: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [SNOWMELT, *arguments], env=snowmelt.environ(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def _lines(shown: str) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown)
    return [line.rstrip() for line in plain.splitlines()]


def test_doctor_has_a_check_on_few_lines_of_80_columns(snowmelt: Snowmelt) -> None:
    with on_terminal(snowmelt, "doctor") as terminal:
        lines = _lines(terminal.rest())
    checks = [line for line in lines if re.match(r"(ok|warn|fail) ", line)]
    assert len(checks) > 5
    # A command in a hint is never truncated: it is on its own line.
    longest = max(lines, key=len)
    assert len(longest) <= COLUMNS or "fix:" in longest or "needed:" in longest, longest
    assert not any("│" in line for line in lines)


def test_top_fits_80_columns_and_q_ends_it(alone: Snowmelt) -> None:
    alone.run("up").succeeded()
    try:
        with on_terminal(alone, "top") as terminal:
            before = termios.tcgetattr(terminal.descriptor)[3]
            shown = terminal.until("hit rate")
            assert before & termios.ICANON
            os.write(terminal.descriptor, b"xq")
            lines = _lines(terminal.rest())
            assert terminal.process.returncode == 0, terminal.shown
            assert max(map(len, lines)) <= COLUMNS, lines
            # The terminal settings are restored: typed characters are echoed.
            assert termios.tcgetattr(terminal.descriptor)[3] == before
        assert "install" in shown
    finally:
        alone.run("down").succeeded()


def test_more_memory_than_the_machine_has_is_refused(snowmelt: Snowmelt) -> None:
    done = snowmelt.sql("select 1", "--memory", "10000GiB")
    done.failed_with("SM-0110", "does not fit", "--memory")
    assert done.code == 2
