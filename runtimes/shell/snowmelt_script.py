"""Runs a shell script as a function: `snowmelt fn deploy NAME FILE.sh` sends it beside the script.

The contract is in docs/reference/functions.md. Invariant: a script that fails fails its call, with its exit
code and the end of what it wrote to stderr; all of that is in the log as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any, NoReturn

# Bytes of the end of stderr that an error shows.
_MAX_SHOWN = 2000

_FOLDER = Path(__file__).parent


class ScriptFailed(Exception):
    """A script that did not end with exit code 0."""


def shell_script(event: Any) -> Any:
    """Calls the script; what it prints is the result."""
    given = json.loads((_FOLDER / "snowmelt_script.json").read_text())
    name = given["script"]
    arguments, text = _input(event)
    command = [*given["interpreter"], str(_FOLDER / name), *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_secrets(given["secrets"])},
    )
    tail = bytearray()
    following = threading.Thread(target=_follow, args=(process.stderr, tail))
    following.start()
    printed = _talk(process, text)
    following.join()
    code = process.wait()
    if code != 0:
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said = bytes(tail[-_MAX_SHOWN:]).decode(errors="replace").strip()
        raise ScriptFailed(f"{name} {ended}" + (f": {said}" if said else "")) from None
    try:
        return _result(printed.decode())
    except UnicodeDecodeError:
        raise ScriptFailed(f"{name} printed bytes that are not UTF-8") from None


def _input(event: Any) -> tuple[list[str], str]:
    """The arguments and stdin that stand for an event."""
    if isinstance(event, list):
        return [one if isinstance(one, str) else json.dumps(one) for one in event], ""
    if isinstance(event, str):
        return [], event
    return [], json.dumps(event) + "\n"


def _secrets(names: list[str]) -> dict[str, str]:
    if not names:
        return {}
    import snowmelt as sm

    return {name: sm.secret(name) for name in names}


def _talk(process: subprocess.Popen[bytes], text: str) -> bytes:
    """Writes stdin and reads stdout at the same time."""
    assert process.stdin is not None and process.stdout is not None
    stdin = process.stdin

    def write() -> None:
        try:
            with stdin:
                stdin.write(text.encode())
        except BrokenPipeError:
            pass  # A script need not read its input.

    writing = threading.Thread(target=write)
    writing.start()
    printed = process.stdout.read()
    writing.join()
    return printed


def _follow(stderr: Any, tail: bytearray) -> None:
    """Passes on what a script writes to stderr, and keeps its end."""
    while piece := os.read(stderr.fileno(), 65536):
        os.write(2, piece)
        tail += piece
        del tail[:-_MAX_SHOWN]


def _result(printed: str) -> Any:
    """JSON as its value, everything else as text without its last line end."""
    text = printed.removesuffix("\n")
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
