"""Functions in other engines: one `@sm.udf`, called from DuckDB, Polars, pandas, DataFusion, ibis
and Spark, and computed in sandboxes of the platform. docs/reference/udf.md has an example of each.

```python
from snowmelt.engines import duckdb as in_duckdb

in_duckdb.register(connection, score)
connection.sql("select score(amount) from sales")
```

Each engine has a module here, which imports the engine only when it is used.
"""

from __future__ import annotations

import threading
from typing import Any

from .. import _called
from .._aggregate import Aggregate
from .._remote import Remote
from .._udf import AnyUdf, Udf
from ..errors import make

__all__ = ["Remote", "remote"]

_lock = threading.Lock()


def remote(
    function: AnyUdf | Remote | str,
    *,
    instances: int | None = None,
    repeatable: bool = False,
    transport: str = "auto",
    follow: bool = False,
    prints: bool | None = None,
) -> Remote:
    """A function in sandboxes, for Arrow arrays: `remote(score)(array)`. It is one of this program
    as it is now, with what it refers to, or the name of a registered one, whose last version is
    used from then on; with `follow=True`, each new lease is of the version that is the last then.

    `instances` is the most instances that the threads of this process share, by default one for
    each core. With `repeatable=True`, rows whose instance was lost are sent again to another one.
    `transport` is `"socket"`, `"shared"` (memory) or `"auto"`: shared memory for large batches.
    `"flight"`, `"json"`, `"mlflow"`, `"numpy"` and `"parquet"` pass batches as other systems do.
    What the function prints is shown on stderr when its instance is returned, about a second after
    the last call, unless `prints=False` or SNOWMELT_PRINTS=0.
    """
    if isinstance(function, Remote):
        return function
    given: Any = {"instances": instances, "repeatable": repeatable, "transport": transport}
    given["prints"] = prints
    if isinstance(function, str):
        return Remote(_called.registered(function, follows=follow), **given)
    if follow:
        raise make("SM-0110", "follow=True is for registered functions, which are given by name")
    if isinstance(function, Aggregate):
        raise TypeError(f"{function!r} is an aggregate function, which only sm.sql can call")
    if not isinstance(function, Udf):
        raise TypeError(f"{function!r} is not a function with @sm.udf or @sm.table")
    if instances is not None or repeatable or transport != "auto" or prints is not None:
        return Remote(function, **given)
    called = _called.given(function)
    # The same instances for all engines of this process, as long as the code is the same.
    with _lock:
        known: Any = function.__dict__.get("_remote")
        if known is None or not known.is_of(called):
            known = Remote(called)
            function.__dict__["_remote"] = known
    return known  # type: ignore[no-any-return]


def check_parameters(called: Remote, engine: str) -> None:
    """Raises `Error` for a function without parameters, which an engine cannot call."""
    if len(called.arguments) == 0:
        raise make(
            "SM-0205",
            f"`{called.name}` has no parameters, by which {engine} gives a function its rows",
            hint="give it a parameter, for example the key of the row",
        )
