"""Files that travel with functions: `files=` of the decorators, and `sm.file`.

Invariant: a file that cannot be read, or that changes while it is read, is an error before anything
is registered or called. No link is followed below a folder: it could lead out of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._client import Client

# Paths, or paths by the names that the function uses.
Files = Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]]

# Names the folder of the files in an instance (`crates/node/src/user_code/unit.rs`).
VARIABLE = "SNOWMELT_FILES"

# The folder of broadcasts among the files of a function.
BROADCASTS = ".broadcast"

# The limits of the platform (`crates/api/src/files.rs`).
MAX_FILES = 1000
MAX_BYTES = 4 << 30
_MAX_NAME_BYTES = 512
_MAX_PART_BYTES = 255

_PIECE_BYTES = 256 << 10

# The folder of this process's function, once it is known to be an instance.
_instance = False
_folder: str | None = None

# What functions of this process have declared, for calls without a platform.
_declared: dict[str, str] = {}


def file(name: str) -> str:
    """The path of a file or folder that was given to the function, by the name that it has there.

    Where no platform runs the function, as in a unit test, it is the path that `files=` named, or
    one in the working folder. Raises `FileNotFoundError`.
    """
    reason = _wrong(name.rstrip("/"))
    if reason is not None:
        raise ValueError(f"{name!r} is not the name of a file of a function: {reason}")
    found = _local(name) if not _instance else os.path.join(_folder or "", name)
    if (_instance and _folder is None) or not os.path.lexists(found):
        raise FileNotFoundError(2, f"the function has no such file ({_known()})", name)
    return found


def _local(name: str) -> str:
    """The path of a file in a process that is not an instance."""
    for declared, path in _declared.items():
        if name == declared:
            return path
        if name.startswith(f"{declared}/"):
            return os.path.join(path, name[len(declared) + 1 :])
    return os.path.abspath(name)


def _known() -> str:
    if not _instance:
        return f"there is none in {os.getcwd()} either"
    names = sorted(set(os.listdir(_folder)) - {BROADCASTS}) if _folder else []
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return f"it has {shown}" if names else "none was given with files= or --file"


def enter(folder: str | None) -> None:
    """Makes this process an instance: its working folder is that of its files, and modules among
    them can be imported, as those beside a program can."""
    global _instance, _folder
    _instance, _folder = True, folder
    if folder is not None and os.listdir(folder) != [BROADCASTS]:
        os.chdir(folder)
        # The zygote of this code may have added it.
        if folder not in sys.path:
            sys.path.insert(0, folder)


def declared(files: Any) -> dict[str, str]:
    """Absolute paths by the names that the function uses. `files` is a list of paths, or a mapping
    of names to paths. Raises `TypeError`."""
    if isinstance(files, (str, bytes)) or not isinstance(files, (Sequence, Mapping)):
        raise TypeError(f"files is a list or a mapping: write files=[{files!r}]")
    found: dict[str, str] = {}
    pairs = files.items() if isinstance(files, Mapping) else ((None, path) for path in files)
    for given, path in pairs:
        path = os.path.abspath(os.fspath(path))
        name = os.path.basename(path) if given is None else str(given).rstrip("/")
        if name in found:
            raise TypeError(f"files has {name!r} twice: name them with a mapping")
        found[name] = path
    if not _instance:
        _declared.update(found)
    return found


def lacking(files: Mapping[str, str]) -> list[str]:
    """The declared files that this instance was not given."""
    there = _folder or "/nowhere"
    return [name for name in files if not os.path.lexists(os.path.join(there, name))]


def send(platform: Client, files: Mapping[str, str]) -> dict[str, Any]:
    """Sends the contents that the platform lacks, and gives the wire `FileRefs`. Raises `Error`."""
    paths = dict(_all(files))
    refs: dict[str, Any] = {}
    for name, path in paths.items():
        digest, size = _read(path)
        refs[name] = {"digest": digest, "size": size}
    by_digest = {ref["digest"]: name for name, ref in refs.items()}
    if refs:
        answer = platform.call("POST", "/v1/files", {"digests": list(by_digest)})
        for digest in answer["missing"]:
            name = by_digest[digest]
            send_one(platform, paths[name], digest, refs[name]["size"])
    return refs


def send_one(platform: Client, path: str, digest: str, size: int) -> None:
    """Sends a file with this SHA-256. Raises `Error`."""
    try:
        with open(path, "rb") as opened:
            platform.call("POST", f"/v1/files/{digest}", _Exactly(opened, path, size))
    except OSError as error:
        raise _unreadable(path, error) from None


class _Exactly:
    """A body of a known length, for `http.client`."""

    def __init__(self, opened: Any, path: str, size: int) -> None:
        self._opened, self._path, self._left = opened, path, size
        self.size = size

    def read(self, most: int = -1) -> bytes:
        wanted = min(self._left, _PIECE_BYTES if most < 0 else max(most, _PIECE_BYTES))
        piece: bytes = self._opened.read(wanted)
        if len(piece) < wanted:
            raise _changed(self._path)
        self._left -= len(piece)
        return piece


def _all(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names and paths of all files, those of folders included; sizes are checked before any of them
    is read."""
    names: set[str] = set()
    total = 0
    for name, path, size in _found(files):
        if (reason := _wrong(name)) is not None:
            raise _refused(f"{path} cannot be named {name!r}: {reason}")
        if name in names:
            raise _refused(f"two files have the name {name!r}")
        names.add(name)
        total += size
        if len(names) > MAX_FILES:
            hint = "put many small files into an archive or an image"
            raise _refused(f"there are more than {MAX_FILES} files, at {path}", hint)
        if total > MAX_BYTES:
            hint = "build an image with large files, and run the function in it"
            raise _refused(f"the files are larger than 4 GiB together, at {path}", hint)
        yield name, path
    for name in names:
        folder = name.rpartition("/")[0]
        while folder:
            if folder in names:
                raise _refused(f"{folder!r} is a file and also the folder of {name!r}")
            folder = folder.rpartition("/")[0]


def _found(files: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    for name, path in files.items():
        try:
            if os.path.isdir(path):
                yield from _below(path, "" if name == "." else f"{name}/")
            elif os.path.isfile(path):
                yield name, path, os.path.getsize(path)
            else:
                os.stat(path)
                raise _refused(f"{path} is neither a file nor a folder")
        except OSError as error:
            raise _unreadable(path, error) from None


def _below(folder: str, prefix: str) -> Iterator[tuple[str, str, int]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name = prefix + entry.name
        if entry.is_symlink():
            hint = "name what it leads to: files={name: path}"
            raise _refused(f"{entry.path} is a symbolic link", hint)
        if entry.is_dir():
            yield from _below(entry.path, f"{name}/")
        elif entry.is_file():
            yield name, entry.path, entry.stat().st_size
        else:
            raise _refused(f"{entry.path} is neither a file nor a folder")


def _wrong(name: str) -> str | None:
    """Why this cannot be the name of a file of a function."""
    try:
        length = len(name.encode())
        longest = max(len(part.encode()) for part in name.split("/"))
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if not name:
        return "it is empty"
    if length > _MAX_NAME_BYTES or longest > _MAX_PART_BYTES:
        return "it is too long: 512 bytes are allowed, and 255 between two slashes"
    if name.startswith("/"):
        return "it is an absolute path"
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in name):
        return "it has a control character"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "no part of it may be empty, `.` or `..`"
    return None


# Digests of files that this process has read, by path, and by what changes with the content.
_digests: dict[tuple[Any, ...], tuple[str, int]] = {}


def _read(path: str) -> tuple[str, int]:
    """SHA-256 and length of a file that stays the same meanwhile."""
    import hashlib

    try:
        with open(path, "rb") as opened:
            before = _state(opened, path)
            if before in _digests:
                return _digests[before]
            hasher, size = hashlib.sha256(), 0
            while piece := opened.read(_PIECE_BYTES):
                hasher.update(piece)
                size += len(piece)
            after = _state(opened, path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if before != after or size != after[-1]:
        raise _changed(path)
    _digests[before] = hasher.hexdigest(), size
    return _digests[before]


def _state(opened: Any, path: str) -> tuple[Any, ...]:
    found = os.fstat(opened.fileno())
    return path, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _changed(path: str) -> Exception:
    hint = "register the function when nothing writes the file"
    return _refused(f"{path} changed while it was read", hint)


def _unreadable(path: str, error: OSError) -> Exception:
    return _refused(f"{path} cannot be read: {error.strerror or error}")


def _refused(message: str, hint: str | None = None) -> Exception:
    from .errors import make

    return make("SM-0230", message, hint=hint)
