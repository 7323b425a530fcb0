"""What a zygote imports for pickled functions and for UDFs, beside `serve`.

Invariant: nothing is looked for that is not imported already (a zygote remembers what its imports
missed), and what is imported is used once, so that a child's first call does what its second does.
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
