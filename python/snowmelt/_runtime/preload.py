"""Imports of a zygote for pickled functions and for UDFs, in addition to `serve`.

Invariant: no module is looked up that is not imported already (a zygote records missed imports),
and imported code is run once, so that a child's first call is as fast as its second.
"""

from __future__ import annotations

import sys

from .._vendor import cloudpickle
from . import function, serve

__all__ = ["function", "serve"]

cloudpickle.dumps(lambda: None)

if "pyarrow" in sys.modules:
    from . import warm

    warm.run()
