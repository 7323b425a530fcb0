"""What a zygote imports for UDFs: pyarrow, this package's batch code, and numpy and pandas if they
are there, each used once.

Invariant: importing it starts no thread, because a process with threads must not be forked.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from . import serve  # isort: skip; before pyarrow, because it sets what pyarrow reads when loaded

import pyarrow as pa

from .._elements import element
from .._signature import Signature
from . import function, process, udf

__all__ = ["function", "process", "serve", "udf"]


def _first(x: Any, y: Any) -> Any:
    return x


def warm() -> None:
    """Runs a batch of each form, so that children find imports done and caches filled."""
    for form in ("scalar", "arrow", "numpy", "pandas"):
        if form in ("numpy", "pandas") and importlib.util.find_spec(form) is None:
            continue
        arguments = (("x", element(float)), ("y", element(str | None)))
        signature = Signature("warm", form, arguments, element(float))
        batch = pa.record_batch({"x": pa.array([1.0, None, 2.0]), "y": pa.array(["a", "b", None])})
        evaluate = udf.evaluator(_first, signature, "raise")
        result = pa.RecordBatch.from_arrays([evaluate(batch)], ["return"])
        pa.ipc.read_record_batch(result.serialize(), pa.ipc.read_schema(result.schema.serialize()))


warm()
