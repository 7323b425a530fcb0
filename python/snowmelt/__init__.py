"""Snowmelt: SQL and Python functions as bursts of short-lived containers, from Python.

`import snowmelt as sm` is cheap: every name below is imported on its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._aggregate import Aggregate as Aggregate
    from ._aggregate import aggregate as aggregate
    from ._batch_types import Array as Array
    from ._batch_types import NDArray as NDArray
    from ._batch_types import Series as Series
    from ._broadcast import Broadcast as Broadcast
    from ._broadcast import broadcast as broadcast
    from ._burst import BurstResults as BurstResults
    from ._burst import burst as burst
    from ._burst import new_job as new_job
    from ._files import file as file
    from ._function import Deployed as Deployed
    from ._function import Function as Function
    from ._function import Invocation as Invocation
    from ._function import function as function
    from ._job import Job as Job
    from ._job import job as job
    from ._map import map as map
    from ._network import Network as Network
    from ._program import deploy as deploy
    from ._program import deployed as deployed
    from ._prune import prune as prune
    from ._query import Query as Query
    from ._query import sql as sql
    from ._secrets import secret as secret
    from ._server import connect as connect
    from ._setup import Setup as Setup
    from ._setup import setup as setup
    from ._table import TableFunction as TableFunction
    from ._table import table as table
    from ._udf import Udf as Udf
    from ._udf import udf as udf
    from .errors import (
        Error as Error,
    )
    from .errors import (
        FunctionError as FunctionError,
    )
    from .errors import (
        MapError as MapError,
    )
    from .errors import (
        PackageError as PackageError,
    )
    from .errors import (
        PlatformError as PlatformError,
    )
    from .errors import (
        QueryError as QueryError,
    )
    from .errors import (
        SignatureError as SignatureError,
    )

_NAMES_BY_MODULE = {
    "_aggregate": ("Aggregate", "aggregate"),
    "_batch_types": ("Array", "NDArray", "Series"),
    "_broadcast": ("Broadcast", "broadcast"),
    "_burst": ("BurstResults", "burst", "new_job"),
    "_files": ("file",),
    "_function": ("Deployed", "Function", "Invocation", "function"),
    "_job": ("Job", "job"),
    "_map": ("map",),
    "_network": ("Network",),
    "_program": ("deploy", "deployed"),
    "_prune": ("prune",),
    "_query": ("Query", "sql"),
    "_secrets": ("secret",),
    "_server": ("connect",),
    "_setup": ("Setup", "setup"),
    "_table": ("TableFunction", "table"),
    "_udf": ("Udf", "udf"),
    "errors": (
        "Error",
        "FunctionError",
        "MapError",
        "PackageError",
        "PlatformError",
        "QueryError",
        "SignatureError",
    ),
}

_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'snowmelt' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
