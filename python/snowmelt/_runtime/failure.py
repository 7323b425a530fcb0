"""The report to the platform when user code fails: `FunctionFailure` of `crates/wire`.

Invariant: only the user's own frames are shown; frames of this package, of the standard library and
of installed packages are left out.
"""

from __future__ import annotations

import errno
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from .. import _secrets
from . import limits

INPUT_CHARACTERS = 200
EXCEPTION_CHARACTERS = 2_000
_FRAMES_SHOWN = 20

# Files whose text came with the code: these are the user's whatever their path. The name of each
# that is shown.
_own_files: dict[str, str] = {}


def own(file: str, text: str, name: str | None = None) -> None:
    """Marks a file as the user's and gives tracebacks its lines. It is shown with `name`."""
    _own_files[file] = name or file
    lines = text.splitlines(keepends=True)
    # A modification time of None keeps `linecache.checkcache` from checking the disk.
    linecache.cache[file] = (len(text), None, lines, file)


def disown(file: str) -> None:
    """Undoes `own`."""
    _own_files.pop(file, None)
    linecache.cache.pop(file, None)


class Failed(Exception):
    """User code failed; `message` is the JSON object for the platform."""

    def __init__(self, kind: str, exception: str, *, function: str = "", **more: Any) -> None:
        super().__init__(exception)
        # Before it is shortened, which could leave a part of a secret.
        text = _shortened(_secrets.hidden(exception), EXCEPTION_CHARACTERS)
        self.message: dict[str, Any] = {"kind": kind, "function": function, "exception": text}
        said = {name: value for name, value in more.items() if value is not None}
        self.message.update(_secrets.hidden(said))


def from_exception(error: BaseException, kind: str, function: str, **more: Any) -> Failed:
    """The failure for an exception of the user's code."""
    frames = _user_frames(error.__traceback__)
    if kind == "raised":
        kind, reached = limits.reached(error) or (kind, {})
        more.update(reached)
    if isinstance(error, SyntaxError) and error.filename in _own_files:
        file = _own_files[error.filename or ""]
        frames.append((file, error.lineno or 1, "<module>", error.text))
    summary = exception_line(error)
    more.setdefault("hint", hint(error))
    return Failed(
        kind,
        summary,
        function=function,
        location=_location(frames),
        traceback=_excerpt(frames, error),
        **more,
    )


def exception_line(error: BaseException) -> str:
    """`ValueError: too short`, on one line."""
    name = type(error).__name__
    try:
        text = " ".join(_secrets.hidden(str(error)).split())
    except Exception:  # A user's __str__ may raise: only the type is shown then.
        text = ""
    return _shortened(f"{name}: {text}" if text else name, EXCEPTION_CHARACTERS)


def shown(name: str, value: Any) -> str:
    """`name = repr`, shortened; a `__repr__` that raises is shown by its type."""
    try:
        text = _secrets.hidden(repr(value))
    except Exception:
        text = f"<{type(value).__name__}>"
    return f"{name} = {_shortened(text, INPUT_CHARACTERS)}"


def _shortened(text: str, limit: int) -> str:
    # Lone surrogates cannot be sent as UTF-8.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


# Files that the platform sends beside the user's code, to run it.
_RUNNERS = ("snowmelt_script.py",)

_Frame = tuple[str, int, str, "str | None"]


def _user_frames(trace: TracebackType | None) -> list[_Frame]:
    frames: list[_Frame] = []
    for frame, line in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        shown = _own_files.get(file, file)
        if _is_user_file(file) and os.path.basename(shown) not in _RUNNERS:
            source = linecache.getline(file, line, frame.f_globals).strip()
            text = _shortened(source, INPUT_CHARACTERS) or None
            name = frame.f_code.co_name
            within = name if name.startswith("<") else f"{name}()"
            frames.append((shown, line, within, text))
    return frames


def _library_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    roots = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Folders that the platform put on the path are packages; the working folder ("") is not.
    roots.update(path for path in sys.path if path and os.path.isdir(path))
    return tuple(os.path.join(root, "") for root in roots)


_ROOTS = _library_roots()


def _is_user_file(file: str) -> bool:
    if file in _own_files:
        return True
    if file.startswith("<frozen ") or "/site-packages/" in file:
        return False
    return not file.startswith(_ROOTS)


def _location(frames: list[_Frame]) -> dict[str, Any] | None:
    if not frames:
        return None
    file, line, within, _ = frames[-1]
    return {"file": file, "line": line, "within": within}


def _excerpt(frames: list[_Frame], error: BaseException) -> list[str]:
    lines: list[str] = []
    if len(frames) == 1:
        lines += [text for *_, text in frames if text]
    else:
        for file, line, within, text in frames[-_FRAMES_SHOWN:]:
            lines.append(f"{file}:{line} in {within}")
            lines += [f"    {text.strip()}"] if text else []
    lines.append(exception_line(error))
    if error.__cause__ is not None:
        lines.append(f"caused by {exception_line(error.__cause__)}")
    return lines


# The path of this package for the interpreter of an image (`crates/node/src/user_code/unit.rs`).
_IN_IMAGE = __file__.startswith("/run/snowmelt/runtime/")

# Modules whose package has another name.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}

_NO_NETWORK = "functions have no network: give the data as arguments or as a table"
_OWN_FILES = 'a function sees no files but its own: name them with files=["…"] (--file)'
_ONLY_TMP = "only /tmp can be written inside a function"

_HINTS = {
    errno.EAFNOSUPPORT: _NO_NETWORK,
    errno.ENETDOWN: _NO_NETWORK,
    errno.ENETUNREACH: _NO_NETWORK,
    errno.ENOENT: _OWN_FILES,
    errno.EACCES: f'{_ONLY_TMP}, and it sees no files but its own: files=["…"] (--file)',
    errno.EROFS: _ONLY_TMP,
}

# Of an exception and what it comes from: libraries wrap errors of the network several times.
_MAX_CAUSES = 8


def hint(error: BaseException) -> str | None:
    """A hint for an exception that the sandbox causes."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        root = error.name.partition(".")[0]
        package = _DISTRIBUTIONS.get(root, root)
        if _IN_IMAGE:
            return f"build an image that has it: snowmelt image build --base … --python {package}"
        return f'name the package that has it: packages=["{package}"] (--package {package})'
    if isinstance(error, MemoryError):
        return limits.more_memory()
    if any(map(_is_of_network, _causes(error))):
        return _NO_NETWORK
    if isinstance(error, OSError):
        at_limit = error.errno == errno.EAGAIN
        return limits.fewer_processes() if at_limit else _HINTS.get(error.errno or 0)
    return None


def _is_of_network(error: BaseException) -> bool:
    number = error.errno if isinstance(error, OSError) else None
    return type(error).__name__ == "gaierror" or _HINTS.get(number or 0) == _NO_NETWORK


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it comes from, `reason` of `urllib` included."""
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None:
            return
        yield current
        reason = getattr(current, "reason", None)
        if not isinstance(reason, BaseException):
            reason = current.__cause__ or current.__context__
        current = reason
