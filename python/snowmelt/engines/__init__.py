"""Functions in other engines: one `@sm.udf`, called from DuckDB, Polars, pandas, DataFusion, ibis
and Spark, and computed in sandboxes of the platform. docs/udf.md has an example of each.

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

from .._aggregate import Aggregate
from .._remote import Remote, registered
from .._udf import AnyUdf, Udf

__all__ = ["Remote", "remote"]

_lock = threading.Lock()


def remote(
    function: AnyUdf | Remote | str,
    *,
    instances: int | None = None,
    repeatable: bool = False,
    transport: str = "auto",
) -> Remote:
    """A function in sandboxes, for Arrow arrays: `remote(score)(array)`. It is one of this program,
    or the name of a registered one, whose last version is used from then on.

    `instances` is the most instances that the threads of this process share, by default one for
    each core. With `repeatable=True`, rows whose instance was lost are sent again to another one.
    `transport` is `"socket"`, `"shared"` (memory) or `"auto"`: shared memory for large batches.
    `"flight"`, `"json"`, `"mlflow"`, `"numpy"` and `"parquet"` pass batches as other systems do.
    """
    if isinstance(function, Remote):
        return function
    if isinstance(function, str):
        called = registered(function)
        return Remote(called, instances=instances, repeatable=repeatable, transport=transport)
    if isinstance(function, Aggregate):
        raise TypeError(f"{function!r} is an aggregate function, which only sm.sql can call")
    if not isinstance(function, Udf):
        raise TypeError(f"{function!r} is not a function with @sm.udf or @sm.table")
    if instances is not None or repeatable or transport != "auto":
        return Remote(function, instances=instances, repeatable=repeatable, transport=transport)
    # The same instances for all engines of this process.
    with _lock:
        known: Any = function.__dict__.get("_remote")
        if known is None or not known.is_of_this_platform():
            known = Remote(function)
            function.__dict__["_remote"] = known
    return known  # type: ignore[no-any-return]
