"""Imported by the zygote of one piece of code: executes the code and runs its shared set-ups, so
that all instances that are forked from it have their state in the same memory.

Only a zygote that serves the functions of this code alone imports it. It raises what the code
raises: then each instance executes the code itself, and reports the failure.
"""

from __future__ import annotations

import os

from .. import _files
from . import code, serve

# Where the files of the function are (`crates/node/src/user_code/unit.rs`). A zygote is not told.
_FILES = "/run/snowmelt/files"

_files.enter(_FILES if os.path.isdir(_FILES) else None)
try:
    code.load(serve.CODE, "").set_up("", shared_only=True)
finally:
    os.chdir("/")
