"""`sm.deploy` and `sm.deployed`: functions of any language on a running server, by their names.

Invariant: code is uploaded by value; only the root folder of an image is passed as a path.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ._client import Client, client
from ._files import Files, declared, send
from ._function import Deployed, limits
from ._versions import with_version
from ._wheels import upload_wheels
from .errors import hide_internal_frames, make

# The runtime for the ending of a file.
_ENDINGS = {
    ".cjs": "node",
    ".js": "node",
    ".mjs": "node",
    ".jar": "java",
    ".java": "java",
    ".py": "python",
}
_RUNTIMES = ("python", "node", "java", "go")

# Limit of all files together, so that they fit into one request as base64.
_MAX_BYTES = 180 << 20


@hide_internal_frames
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
    python: str | None = None,
    files: Files = (),
    tenant: str | None = None,
    **options: Any,
) -> Deployed:
    """Deploys a file or folder to the running server, as `snowmelt fn deploy` does.

    `runtime` is `python`, `node`, `java` or `go`; the default depends on the file's ending.
    `command` is your own program with its arguments instead. `image` is a block image to run in,
    `root` the unpacked file system of one. `packed` is a code package (`snowmelt fn pack`) instead
    of the path. The other arguments are those of `@sm.function`.
    """
    if (path is None) == (packed is None):
        message = "a function is either code or a code package"
        raise make("SM-0110", message, hint="give either path or packed=")
    images = {} if image is None else {"image": image}
    spec: dict[str, Any] = {
        "name": name,
        **_source_of(path, packed, runtime, command, root),
        **images,
        "handler": handler,
        "options": limits(**options),
        "expected": 1,
    }
    named = declared(files)
    server = running(tenant)
    spec["packages"] = upload_wheels(server, with_version(packages, python))
    if named:
        spec["files"] = send(server, named)
    server.call("POST", "/v1/functions", spec)
    return Deployed(server, name)


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
        hint = "omit runtime=, command= and root="
        raise make("SM-0110", "a code package determines its own runtime", hint=hint)
    return {"packed": packed}


def _code(
    path: Path,
    runtime: str | None,
    command: str | Sequence[str] | None,
    root: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """The fields of the API's `FunctionSpec` for the code and its runtime."""
    words = shlex.split(command) if isinstance(command, str) else list(command or ())
    chosen = _runtime(path, runtime, command is not None)
    images = {} if root is None else {"root": str(Path(root).resolve())}
    code = _source(path) if chosen == "python" else _files(path)
    return {"code": code, "runtime": chosen, "command": words, **images}


@hide_internal_frames
def deployed(name: str, *, tenant: str | None = None) -> Deployed:
    """A function of any language on the running server, by its name."""
    server = running(tenant)
    server.call("GET", f"/v1/functions/{name}")
    return Deployed(server, name)


def running(tenant: str | None) -> Client:
    """A client of the running server, which keeps what it is given. Raises `Error`."""
    server = client(tenant)
    if server.server.private:
        message = "no server is running that can keep a deployed function"
        raise make("SM-0503", message, hint="start one: snowmelt up")
    return server


def _runtime(path: Path, runtime: str | None, has_command: bool) -> str:
    if has_command:
        if runtime is not None:
            raise make(
                "SM-0110", "runtime= cannot be combined with command=", hint="omit one of them"
            )
        return "command"
    found = runtime or (None if path.is_dir() else _ENDINGS.get(path.suffix))
    if found not in _RUNTIMES:
        raise make(
            "SM-0110",
            f"the runtime of {path} is unknown" if found is None else f"unknown runtime {found}",
            hint=f"give one of {', '.join(_RUNTIMES)} as runtime=, or a command=",
        )
    return found


def _source(path: Path) -> dict[str, Any]:
    with _read_errors(path):
        return {"kind": "source", "file": str(path), "text": path.read_text(encoding="utf-8")}


def _files(path: Path) -> dict[str, Any]:
    files: dict[str, Any] = {}
    total = 0
    with _read_errors(path):
        for name, file in _walk(path):
            data = file.read_bytes()
            total += len(data)
            if total > _MAX_BYTES:
                hint = "put large files into an image and use image="
                raise make("SM-0110", "the files are larger than 180 MiB together", hint=hint)
            executable = bool(file.stat().st_mode & 0o111)
            files[name] = {"data": base64.b64encode(data).decode(), "executable": executable}
    if not files:
        raise make("SM-0110", f"{path} is empty")
    return {"kind": "files", "files": files}


def _walk(path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_dir():
        yield path.name, path
        return
    for entry in sorted(path.rglob("*")):
        if entry.is_symlink() and entry.is_dir():
            raise make("SM-0110", f"{entry} cannot be sent: it is a link to a folder")
        if entry.is_file():
            yield entry.relative_to(path).as_posix(), entry


class _read_errors:
    """Turns errors of the file system into errors of the platform."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError):
            message = f"{error.filename or self._path} cannot be read: {error.strerror}"
            raise make("SM-0110", message) from None
        if isinstance(error, UnicodeDecodeError):
            raise make("SM-0110", f"{self._path} is not UTF-8 text") from None
