"""Runs a batch of each form once, so that a forked child finds imports done and caches filled.

Invariant: it starts no thread, because a process with threads must not be forked.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from .._elements import element
from .._signature import BATCHES, Signature
from . import udf


def _first(x: Any, y: Any) -> Any:
    return x


def run() -> None:
    """Calls a function of every form whose library is imported."""
    for form in BATCHES:
        if form in ("numpy", "pandas") and form not in sys.modules:
            continue
        arguments = (("x", element(float)), ("y", element(str | None)))
        evaluate = udf.evaluator(
            _first, Signature("warm", form, arguments, element(float)), "raise"
        )
        batch = pa.record_batch({"x": pa.array([1.0, None, 2.0]), "y": pa.array(["a", "b", None])})
        result = pa.RecordBatch.from_arrays([evaluate(batch)], ["return"])
        pa.ipc.read_record_batch(result.serialize(), pa.ipc.read_schema(result.schema.serialize()))
