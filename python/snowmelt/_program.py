"""`sm.deploy` and `sm.deployed`: functions of any language on a running platform, by their names.

Invariant: what is deployed travels by value; only the folder of an image is named by its place.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ._client import Client, client
from ._function import Deployed, limits
from ._wheels import sent
from .errors import folded, make

# What the ending of a file stands for.
_ENDINGS = {
    ".cjs": "node",
    ".js": "node",
    ".mjs": "node",
    ".jar": "java",
    ".java": "java",
    ".py": "python",
}
_RUNTIMES = ("python", "node", "java", "go")

# As base64 the files fit into one request.
_MOST_BYTES = 180 << 20


@folded
def deploy(
    name: str,
    path: str | os.PathLike[str] | None = None,
    *,
    packed: str | None = None,
    handler: str = "",
    runtime: str | None = None,
    command: str | Sequence[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    image: str | None = None,
    packages: Sequence[str] = (),
    tenant: str | None = None,
    **options: Any,
) -> Deployed:
    """Deploys a file or folder on the running platform, as `snowmelt fn deploy` does.

    `runtime` is `python`, `node`, `java` or `go`, by default what the file's ending says; `command`
    is a program of your own instead, with its arguments. `image` is a block image to run in, `root`
    the unpacked file system of one. `packed` is a code package (`snowmelt fn pack`) instead of the
    path. The other arguments are those of `@sm.function`.
    """
    if (path is None) == (packed is None):
        message = "a function is either code or a code package"
        raise make("SM-0110", message, hint="name one of them")
    images = {} if image is None else {"image": image}
    spec: dict[str, Any] = {
        "name": name,
        **_source_of(path, packed, runtime, command, root),
        **images,
        "handler": handler,
        "options": limits(**options),
        "expected": 1,
    }
    running = _running(tenant)
    spec["packages"] = sent(running, packages)
    running.call("POST", "/v1/functions", spec)
    return Deployed(running, name)


def _source_of(
    path: str | os.PathLike[str] | None,
    packed: str | None,
    runtime: str | None,
    command: str | Sequence[str] | None,
    root: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    if path is not None:
        return _code(Path(path), runtime, command, root)
    if runtime is not None or command is not None or root is not None:
        hint = "name the package alone"
        raise make("SM-0110", "a code package says itself what runs it", hint=hint)
    return {"packed": packed}


def _code(
    place: Path,
    runtime: str | None,
    command: str | Sequence[str] | None,
    root: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """What of the API's `FunctionSpec` says which code is run by what."""
    words = shlex.split(command) if isinstance(command, str) else list(command or ())
    chosen = _runtime(place, runtime, command is not None)
    images = {} if root is None else {"root": str(Path(root).resolve())}
    code = _source(place) if chosen == "python" else _files(place)
    return {"code": code, "runtime": chosen, "command": words, **images}


@folded
def deployed(name: str, *, tenant: str | None = None) -> Deployed:
    """A function of the running platform by its name, in whatever language it is."""
    running = _running(tenant)
    running.call("GET", f"/v1/functions/{name}")
    return Deployed(running, name)


def _running(tenant: str | None) -> Client:
    running = client(tenant)
    if running.server.private:
        message = "there is no platform that a function could stay deployed on"
        raise make("SM-0503", message, hint="start one: snowmelt up")
    return running


def _runtime(place: Path, runtime: str | None, has_command: bool) -> str:
    if has_command:
        if runtime is not None:
            raise make("SM-0110", "a command goes with no runtime", hint="leave one of them out")
        return "command"
    found = runtime or (None if place.is_dir() else _ENDINGS.get(place.suffix))
    if found not in _RUNTIMES:
        raise make(
            "SM-0110",
            f"what runs {place} is not known" if found is None else f"there is no runtime {found}",
            hint=f"name one of {', '.join(_RUNTIMES)} as runtime=, or give a command=",
        )
    return found


def _source(place: Path) -> dict[str, Any]:
    with _reading(place):
        return {"kind": "source", "file": str(place), "text": place.read_text(encoding="utf-8")}


def _files(place: Path) -> dict[str, Any]:
    files: dict[str, Any] = {}
    total = 0
    with _reading(place):
        for name, file in _walk(place):
            data = file.read_bytes()
            total += len(data)
            if total > _MOST_BYTES:
                hint = "put what is large into an image and name it as image="
                raise make("SM-0110", "the files have more than 180 MiB together", hint=hint)
            executable = bool(file.stat().st_mode & 0o111)
            files[name] = {"data": base64.b64encode(data).decode(), "executable": executable}
    if not files:
        raise make("SM-0110", f"{place} is empty")
    return {"kind": "files", "files": files}


def _walk(place: Path) -> Iterator[tuple[str, Path]]:
    if not place.is_dir():
        yield place.name, place
        return
    for entry in sorted(place.rglob("*")):
        if entry.is_symlink() and entry.is_dir():
            raise make("SM-0110", f"{entry} cannot be sent: it is a link to a folder")
        if entry.is_file():
            yield entry.relative_to(place).as_posix(), entry


class _reading:
    """Turns what the file system says into an error of the platform's form."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError):
            message = f"{error.filename or self._place} cannot be read: {error.strerror}"
            raise make("SM-0110", message) from None
        if isinstance(error, UnicodeDecodeError):
            raise make("SM-0110", f"{self._place} is no text in UTF-8") from None
