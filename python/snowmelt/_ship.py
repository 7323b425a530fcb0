"""Serialises functions: pickled by value, with the source lines that tracebacks show, or as the
source of their file where another version of Python runs them.

Invariant: the user's own modules are inside the pickle, installed packages never are: those are
listed in `packages=` and imported where the function runs.
"""

from __future__ import annotations

import base64
import contextlib
import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from . import _broadcast, _setup, _versions
from ._vendor import cloudpickle
from .errors import make

_SOURCE_BYTES = 1 << 20

# Registering modules with cloudpickle changes a table of the whole process.
_lock = threading.Lock()


def code_of(
    thing: Any, name: str, packages: Sequence[str]
) -> tuple[dict[str, Any], list[_broadcast.Broadcast[Any]]]:
    """The wire `Code` of a function with these requirements, and the broadcasts that it refers to:
    a pickle, or the source of its file where it asks for another Python than this one. Raises
    `FunctionError` if it cannot be sent."""
    version = _versions.of_another(packages)
    return (
        pickled(thing, name) if version is None else (_versions.source_of(thing, name, version), [])
    )


def pickled(thing: Any, name: str) -> tuple[dict[str, Any], list[_broadcast.Broadcast[Any]]]:
    """The wire `Code` of a function, and the broadcasts that it refers to. Raises `FunctionError`
    if it cannot be pickled."""
    try:
        data, shares, broadcasts = _dumps(thing)
    except Exception as error:
        raise make(
            "SM-0204",
            f"`{name}` cannot be sent: {type(error).__name__}: {error}",
            hint="create connections, locks and open files inside the function",
        ) from error
    code = {
        "kind": "pickle",
        "data": base64.b64encode(data).decode(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "sources": _sources(thing),
    }
    return code | {"shared_setup": True} if shares else code, broadcasts


def _dumps(thing: Any) -> tuple[bytes, bool, list[_broadcast.Broadcast[Any]]]:
    """The pickle, whether it contains shared set-ups, and its broadcasts."""
    with _lock:
        known = set(cloudpickle.list_registry_pickle_by_value())
        own = [module for module in _own_modules() if module.__name__ not in known]
        for module in own:
            cloudpickle.register_pickle_by_value(module)
        try:
            with (
                _setup.shared_pickled.collected() as shared,
                _broadcast.pickled.collected() as broadcasts,
            ):
                data = bytes(cloudpickle.dumps(thing))
            return data, bool(shared), broadcasts
        finally:
            for module in own:
                cloudpickle.unregister_pickle_by_value(module)


def _own_modules() -> list[ModuleType]:
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_plain = isinstance(module, ModuleType) and module.__name__ == name and name != "__main__"
        if is_plain and isinstance(file, str) and is_own_file(file):
            found.append(module)
    return found


def _library_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    roots = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots.add(os.path.dirname(os.path.abspath(__file__)))
    return tuple(os.path.join(os.path.realpath(root), "") for root in roots)


_ROOTS = _library_roots()


def is_own_file(file: str) -> bool:
    """Whether a file is the user's: not of Python, of an installed package or of this package."""
    parts = file.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts or file.startswith("<frozen"):
        return False
    return not os.path.realpath(file).startswith(_ROOTS)


def _sources(thing: Any) -> dict[str, str]:
    texts: dict[str, str] = {}
    room = _SOURCE_BYTES
    for file in _files(thing):
        text = "".join(linecache.getlines(file))
        if text and len(text) <= room:
            texts[file] = text
            room -= len(text)
    return texts


def _files(thing: Any) -> Iterator[str]:
    """The user's files that define the function and its dependencies, nearest first."""
    seen: set[int] = set()
    named: set[str] = set()
    waiting = [thing]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        function = getattr(current, "function", current)
        file, further = _parts(function)
        waiting += further
        if file and file not in named and (is_own_file(file) or file.startswith("<")):
            named.add(file)
            yield file


def _parts(thing: Any) -> tuple[str | None, list[Any]]:
    """The file that defines it, and the objects that it refers to."""
    if isinstance(thing, FunctionType):
        names = {name for code in _nested(thing.__code__) for name in code.co_names}
        used = [thing.__globals__[name] for name in names if name in thing.__globals__]
        return thing.__code__.co_filename, [*used, *_contents(thing)]
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if isinstance(thing, ModuleType):
        module = thing
    file = getattr(module, "__file__", None)
    inner = vars(thing).values() if isinstance(thing, type) else []
    methods: list[Any] = [value for value in inner if isinstance(value, FunctionType)]
    if file is None and module is not None and module.__name__ == "__main__":
        # Of an interactive session: its functions have the text.
        return None, methods
    return (file, methods) if file is not None and is_own_file(file) else (None, [])


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _contents(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        # An empty cell raises.
        with contextlib.suppress(ValueError):
            yield cell.cell_contents
