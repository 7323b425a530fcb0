"""Runs many queries on one warm server, and collects all wrong answers and errors."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from reference import Reference

import snowmelt as sm
from common.server import Server

LITERAL = re.compile(r"'(?:[^']|'')*'|--[^\n]*")

WORKERS = [1, 3, 16]
# As many queries run concurrently: on two cores, one computes while another starts its workers.
CLIENTS = 3


@contextmanager
def client_of(socket: Path) -> Iterator[None]:
    """The SDK of this process is a client of this platform during the block."""
    before = os.environ.get("SNOWMELT_SOCKET")
    os.environ["SNOWMELT_SOCKET"] = str(socket)
    try:
        yield
    finally:
        del os.environ["SNOWMELT_SOCKET"]
        if before is not None:
            os.environ["SNOWMELT_SOCKET"] = before


@contextmanager
def warm_server(folder: Path) -> Iterator[None]:
    """A server that the SDK of this process uses during the block."""
    with Server(folder) as server, client_of(server.socket):
        yield


def ask(sql: str, tables: Mapping[str, Path], workers: int, **options: Any) -> pa.Table:
    """Snowmelt's answer, with the tables that the query names. Raises `sm.Error`."""
    words = set(re.findall(r"\w+", LITERAL.sub(" ", sql).lower()))
    named: dict[str, Any] = {name: path for name, path in tables.items() if name in words}
    given = {"workers": workers, "udfs": [], "progress": False, "timeout": "2m", **options}
    return sm.sql(sql, **given, **named).collect()


def wrong(
    sql: str, tables: Mapping[str, Path], workers: int, reference: Reference, **options: Any
) -> str | None:
    """None if Snowmelt's answer is right, otherwise what is wrong with it."""
    try:
        answer = ask(sql, tables, workers, **options)
    except sm.Error as error:
        return f"{error.code}: {error.message}"
    try:
        return reference.difference(sql, answer)
    except duckdb.Error as error:
        return f"DuckDB refuses it: {error}"


def failures(queries: Mapping[str, str], check: Callable[[str], str | None]) -> dict[str, str]:
    """What is wrong with each query that fails, by name."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        found = dict(zip(queries, pool.map(check, queries.values()), strict=True))
    return {name: problem for name, problem in found.items() if problem is not None}


def report(found: Mapping[str, str], queries: Mapping[str, str], workers: int) -> str:
    """All failures as one text: first a line for each, then the SQL of each."""
    lines = [f"{len(found)} of {len(queries)} queries failed with {workers} workers:"]
    lines += [f"{name}: {problem}" for name, problem in found.items()]
    return "\n\n".join([*lines, *(f"-- {name}\n{queries[name]}" for name in found)])
