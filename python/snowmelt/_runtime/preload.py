"""What a zygote imports for pickled functions and for UDFs, beside `serve`.

Invariant: only what is installed is imported, and everything that is imported is used once, so that
a child's first call does what its second does.
"""

from __future__ import annotations

import importlib.util

from .._vendor import cloudpickle
from . import function, serve

__all__ = ["function", "serve"]

cloudpickle.dumps(lambda: None)

# After `serve`, which sets what pyarrow reads when it is loaded.
if importlib.util.find_spec("pyarrow") is not None:
    from . import warm

    warm.run()
