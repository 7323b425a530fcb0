"""Turns the `Code` file that the platform put into the sandbox into Python objects.

Invariant: a code file is executed once per process, however many connections load it, so that
what a module loads at import time (a model, for example) is loaded once. The same holds for each of
its set-up functions.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
import threading
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .. import _setup
from .._setup import Setup
from . import failure, process
from .failure import Failed


class Loaded:
    """Executed code: a module's names, or the one object of a pickle; and its set-up functions."""

    def __init__(self, file: str, names: dict[str, Any]) -> None:
        self.file = file
        self.names = names
        self.setups: list[Setup[Any]] = []

    def set_up(self, function: str, shared_only: bool = False) -> None:
        """Runs the set-up functions that have not run, in their order; with `shared_only`, the
        shared ones and those that they use. Raises `Failed` of kind `setup`."""
        for setup in self.setups:
            if setup.is_done or (shared_only and not setup.shared):
                continue
            try:
                with process.user_code:
                    setup()
            except BaseException as error:
                raise failure.from_exception(error, "setup", function) from None

    def callable(self, name: str) -> Any:
        """The function of that name; a pickle holds only one, whatever its name."""
        found = self.names.get(name, self.names.get("") if "" in self.names else None)
        if callable(found):
            return found
        if found is not None:
            raise Failed("load", f"`{name}` in {self.file} is not a function", function=name)
        public = [key for key, value in self.names.items() if _is_own(self, key, value)]
        have = f"it defines {', '.join(sorted(public))}" if public else "it defines no function"
        raise Failed("load", f"there is no `{name}` in {self.file}: {have}", function=name)


# Flags of a code object (`inspect` has them too, and takes milliseconds to import).
_VAR_POSITIONAL = 0x04


def takes_one(found: Any, name: str, file: str) -> None:
    """Refuses a handler that cannot be called with one argument, the event. Callables other than
    plain functions and methods are not checked. Raises `Failed` of kind `load`."""
    plain = getattr(found, "__func__", found)
    if not isinstance(plain, FunctionType):
        return
    code, bound = plain.__code__, plain is not found
    most = code.co_argcount - bound
    least = most - len(plain.__defaults__ or ())
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    missing = [each for each in keywords if each not in (plain.__kwdefaults__ or {})]
    is_open = bool(code.co_flags & _VAR_POSITIONAL)
    if least > 1:
        takes = f"{least} arguments"
    elif most < 1 and not is_open:
        takes = "no argument"
    elif missing:
        takes = f"the keyword {missing[0]}"
    else:
        return
    raise Failed(
        "load",
        f"`{name}` in {file} takes {takes}, and is called with one: the event",
        function=name,
        hint=f"write def {name}(event)",
    )


def _is_own(loaded: Loaded, name: str, value: Any) -> bool:
    module = loaded.names.get("__name__")
    return callable(value) and not name.startswith("_") and value.__module__ == module


_loaded: dict[str, Loaded] = {}
# Failures that no caller has received yet.
_failed: dict[str, Failed] = {}
# Code files that were read before a connection needed them, with their source compiled.
_read: dict[str, tuple[dict[str, Any], CodeType | None]] = {}
_lock = threading.Lock()


def prefetch(path: str) -> None:
    """Reads the code file at `path`, if it exists, and compiles it without executing it. Errors are
    left to `load`."""
    if path in _loaded:
        return  # The zygote of this code has executed it.
    try:
        code = _contents(path)
        _read[path] = code, _compiled(code) if code["kind"] == "source" else None
    except Exception:
        pass


def preload(path: str) -> None:
    """Executes the code file at `path` before a connection needs it; a failure is raised by the
    first `load`."""
    with _lock:
        try:
            if path not in _loaded:
                _loaded[path] = _execute(path, "")
        except Failed as failed:
            _failed[path] = failed


def load(path: str, function: str) -> Loaded:
    """Executes the code file at `path` unless it has been executed.

    Raises `Failed` of kind `load` or `signature`.
    """
    with _lock:
        failed = _failed.pop(path, None)
        if failed is not None:
            failed.message["function"] = failed.message["function"] or function
            raise failed
        if path not in _loaded:
            _loaded[path] = _execute(path, function)
        return _loaded[path]


def forget(path: str) -> Loaded | None:
    """Makes the next `load` of the code file at `path` execute it again."""
    with _lock:
        return _loaded.pop(path, None)


def _execute(path: str, function: str) -> Loaded:
    read = _read.pop(path, None)
    code, compiled = (_contents(path), None) if read is None else read
    try:
        with _setup.made.collected() as setups:
            loaded = _of_kind(code, compiled, path)
        loaded.setups = setups
        return loaded
    except Failed:
        raise
    except BaseException as error:
        kind = "signature" if type(error).__name__ == "SignatureError" else "load"
        if kind == "signature":
            raise signature_failed(error, function) from None
        raise failure.from_exception(error, kind, function) from None


def _of_kind(code: dict[str, Any], compiled: CodeType | None, path: str) -> Loaded:
    if code["kind"] == "folder":
        from . import folder

        return Loaded(code["file"], folder.execute(code, path))
    if code["kind"] == "pickle":
        return _from_pickle(code)
    if code["kind"] == "definition":
        from . import definition

        return Loaded(code["file"], definition.execute(code))
    return _from_source(code, compiled)


def signature_failed(error: Any, function: str) -> Failed:
    """A `snowmelt.SignatureError` as a failure: it has its own function and location."""
    return Failed(
        "signature",
        error.reason,
        function=error.function or function,
        location=error.report.get("location"),
        hint=error.hint,
    )


def _contents(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        code: dict[str, Any] = json.load(file)
    return code


def _compiled(code: dict[str, Any]) -> CodeType:
    return compile(code["text"], code["file"], "exec", dont_inherit=True)


def _from_source(code: dict[str, Any], compiled: CodeType | None) -> Loaded:
    file = code["file"]
    failure.own(file, code["text"])
    return Loaded(file, run(file, compiled or _compiled(code)))


def run(file: str, compiled: CodeType) -> dict[str, Any]:
    """The names that a module defines, whose code is executed."""
    module = ModuleType(_module_name(file))
    module.__file__ = file
    # Dataclasses and pickle look their module up by name.
    sys.modules[module.__name__] = module
    try:
        exec(compiled, module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module.__dict__


def _module_name(file: str) -> str:
    stem = file.rpartition("/")[2].removesuffix(".py")
    # A user's file may have the name of an existing module, which it must not replace.
    return stem if stem.isidentifier() and stem not in sys.modules else f"__user_{stem}__"


def _from_pickle(code: dict[str, Any]) -> Loaded:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if code["python"] != here:
        raise Failed(
            "load",
            f"it was pickled by Python {code['python']} and runs here on Python {here}",
            hint=f"run the program with Python {here}, or name an interpreter (SNOWMELT_PYTHON) or "
            f"image with Python {code['python']}",
        )
    for file, text in code.get("sources", {}).items():
        failure.own(file, text)
    thing = pickle.loads(base64.b64decode(code["data"]))
    return Loaded("the pickle", {"": thing})
