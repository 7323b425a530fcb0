"""What an engine calls: a function of this program, or a registered one.

Invariant: the code, the version and the types of one `Called` never change. What has changed
meanwhile is another one.
"""

from __future__ import annotations

import base64
import dataclasses
import urllib.parse
from typing import Any

from ._client import Client, client
from ._query import udf_source
from ._udf import AnyUdf
from .errors import make


@dataclasses.dataclass(frozen=True)
class Called:
    """The request for a lease, and the schema of the arguments, then `return`."""

    name: str
    runs: dict[str, Any]
    schema: Any
    kind: str = "scalar"
    # Equal arguments give equal results: an engine may call it once for several rows, or again.
    deterministic: bool = False
    # Each lease is of the version that is the last one then.
    follows: bool = False


def given(udf: AnyUdf) -> Called:
    """A function of this program as it is now, which is sent with each lease."""
    signature = udf.signature
    runs = {"udf": {"source": udf_source(udf, None), "name": signature.name}}
    schema = signature.arrow_schema()
    return Called(signature.name, runs, schema, signature.kind, signature.deterministic)


def registered(name: str, *, follows: bool = False, platform: Client | None = None) -> Called:
    """The last version of a function that is registered. Raises `Error`."""
    import pyarrow as pa

    path = f"/v1/udfs/{urllib.parse.quote(name, safe='')}"
    found = (platform or client()).call("GET", path)
    signature = found["signature"]
    kind = signature.get("kind", "scalar")
    if kind == "aggregate":
        message = f"`{name}` is an aggregate function, which only SQL of the platform can call"
        raise make("SM-0107", message, hint="call it with sm.sql")
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(signature["schema"])))
    # The same version for all calls, also when another one is registered meanwhile.
    version = {"name": found["name"], "version": found["version"]}
    is_deterministic = bool(signature.get("deterministic", False))
    return Called(found["name"], {"registered": version}, schema, kind, is_deterministic, follows)


def last_version(called: Called, platform: Client) -> dict[str, Any]:
    """What a lease runs of a function that follows its last version. Raises `Error`, also if that
    version has other types: the engine was told those of the first one."""
    found = registered(called.name, platform=platform)
    if found.schema != called.schema or found.kind != called.kind:
        version = found.runs["registered"]["version"]
        raise make(
            "SM-0103",
            f"version {version} of `{called.name}` has other types than the one that was found",
            hint="make it remote again, and register it with the engine again",
        )
    return found.runs
