"""Imported by the zygote of one piece of code: executes the code and runs its shared set-ups, so
that all instances that are forked from it have their state in the same memory.

Only a zygote that serves the functions of this code alone imports it. It raises what the code
raises: then each instance executes the code itself, and reports the failure.
"""

from __future__ import annotations

from . import code, serve

code.load(serve.CODE, "").set_up("", shared_only=True)
