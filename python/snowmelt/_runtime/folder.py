"""Executes a folder of Python code: its files import each other as in a program that is started in
that folder, and read files beside themselves.

Invariant: executing it again imports all of its modules again.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import os
import sys
from typing import Any

from . import failure

# Where the files are, beside the code file (`crates/node/src/files/code.rs`).
_FILES = "files"


def execute(code: dict[str, Any], path: str) -> dict[str, Any]:
    """The names that the main file defines. `path` is that of the code file."""
    folder = os.path.join(os.path.dirname(os.path.abspath(path)), _FILES)
    for name, file in code["files"].items():
        if name.endswith(".py"):
            text = base64.b64decode(file["data"]).decode("utf-8", "replace")
            failure.own(os.path.join(folder, name), text, name)
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(os.path.join(folder, "")):
            del sys.modules[name]
    if folder not in sys.path:
        sys.path.insert(0, folder)
        # As for a program in that folder: interpreters that it starts import its files too.
        others = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, others] if others else [folder])
    names: dict[str, Any] = vars(_imported(folder, code["file"]))
    return names


def _imported(folder: str, file: str) -> Any:
    name = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    if name not in sys.modules:
        return importlib.import_module(name)
    # It has the name of a module that the runtime has imported, and must not replace that.
    name = f"__user_{name}__"
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, file))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
