"""`sm.sql`: a query over files and frames, with the caller's functions.

Invariant: creating and showing a query runs nothing. Its first use runs it once, and the answer is
kept. Only what defines a function runs when it is created.
"""

from __future__ import annotations

import html
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from . import (
    _amounts,
    _broadcast,
    _csv_options,
    _dtypes,
    _exchanges,
    _files,
    _names,
    _params,
    _prints,
    _progress,
)
from ._aggregate import Aggregate
from ._answer import Answer
from ._client import client
from ._given import Given
from ._prints import Prints
from ._remote_server import RemoteServer
from ._ship import code_of
from ._tables import Folder, Table
from ._udf import AnyUdf, Udf, udf
from ._wheels import upload_wheels
from .errors import Error, hide_internal_frames, make

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

UdfLike = Union[AnyUdf, str, "os.PathLike[str]", Any]

_ROWS_SHOWN = 20

_OPTIONS = (
    "params",
    "csv",
    "udfs",
    "image",
    "function_files",
    "workers",
    "memory",
    "scan_task",
    "timeout",
    "exchange",
    "exchange_locations",
    "exchange_levels",
    "exchange_combining",
    "exchange_task",
    "price_file",
    "progress",
    "prints",
)


def sql(
    query: str,
    *,
    params: _params.Params | None = None,
    csv: Mapping[str, Any] | None = None,
    udfs: Sequence[UdfLike] | None = None,
    image: str | None = None,
    function_files: _files.Files | None = None,
    workers: int | None = None,
    memory: _amounts.Memory | None = None,
    scan_task: _amounts.Memory | None = None,
    timeout: _amounts.Duration | None = None,
    exchange: str | None = None,
    exchange_locations: str | Sequence[str] | None = None,
    exchange_levels: int | None = None,
    exchange_combining: bool | None = None,
    exchange_task: _amounts.Memory | None = None,
    price_file: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    prints: bool | None = None,
    **tables: Any,
) -> Query:
    """A query; it runs when its answer is first used. `params` are the values of `?` and `$1`, or
    by name of `:name`; `csv` are options of `read_csv` for all CSV files. A statement that defines
    a function runs at once; `function_files` are for that function.
    See docs/reference/python.md."""
    caller = sys._getframe(1)
    defines = _names.defines(query)
    _names.refuse_unread(query, tables, _OPTIONS)
    # The code in a definition names nothing of the caller.
    if not defines:
        tables = {**_names.read_frames(query, caller, set(tables)), **tables}
    called = [] if defines else _names.called_udfs(query, caller)
    functions = called if udfs is None else [_as_udf(u) for u in udfs]
    options: dict[str, Any] = {}
    if workers is not None:
        options["workers"] = _amounts.count("workers", workers)
    if memory is not None:
        options["memory"] = _amounts.memory_bytes(memory)
    scan_task = os.environ.get("SNOWMELT_SCAN_TASK") if scan_task is None else scan_task
    if scan_task is not None:
        options["scan_task"] = _amounts.memory_bytes(scan_task)
    if timeout is not None:
        options["timeout_ms"] = _amounts.milliseconds(timeout)
    exchanged = _exchanges.to_wire(
        exchange, exchange_locations, exchange_levels, exchange_combining, exchange_task
    )
    if exchanged:
        options["exchange"] = exchanged
    if price_file is not None:
        options["prices"] = _prices(price_file)
    made = [Table(name, given) for name, given in tables.items()]
    _check_image(image, functions)
    asked = Query(query, made, functions, options, progress, image, prints)
    if params is not None:
        asked.params = _params.to_wire(params)
    if csv is not None:
        asked.csv = _csv_options.to_wire(csv)
    asked.files = _definition_files(function_files, defines)
    if defines:
        asked.collect()
    return asked


def _prices(path: str | os.PathLike[str]) -> dict[str, str]:
    try:
        return {"file": str(path), "text": Path(path).read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError, TypeError) as error:
        raise make("SM-0110", f"the file of prices {path} cannot be read: {error}") from None


def _definition_files(files: Any, defines: bool) -> dict[str, str]:
    """Paths by the names that the function uses, for a statement that defines one."""
    if files is None:
        return {}
    if not defines:
        hint = "write files= in the decorator of the function that reads them"
        raise make(
            "SM-0110", "function_files= is for CREATE FUNCTION, and this is a query", hint=hint
        )
    try:
        return _files.declared(files)
    except TypeError as error:
        raise make("SM-0110", str(error)) from None


def _check_image(image: Any, functions: Sequence[Any]) -> None:
    if image is not None and not isinstance(image, str):
        message = f"image= is the name of a block image, not a {type(image).__name__}"
        raise make("SM-0110", message, hint="use another name for the table")
    if image is not None and not functions:
        hint = "omit image=, or list the functions in udfs="
        raise make("SM-0110", "image= is for functions, and the query has none", hint=hint)


def _as_udf(given: UdfLike) -> AnyUdf | Aggregate | Path:
    if isinstance(given, (Udf, Aggregate)):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Path(given)
    if isinstance(given, type):
        message = f"udfs= has the class {given.__name__}, which is not an aggregate function"
        raise make("SM-0110", message, hint="write @sm.aggregate before it")
    if callable(given):
        made: AnyUdf = udf(given)
        return made
    raise make(
        "SM-0110", f"udfs= has {given!r}, which is neither a function nor a path of a Python file"
    )


class Query:
    """A query and, after it ran, its answer."""

    def __init__(
        self,
        text: str,
        tables: list[Table],
        udfs: Sequence[AnyUdf | Aggregate | Path],
        options: dict[str, Any],
        progress: bool | None,
        image: str | None = None,
        prints: bool | None = None,
    ) -> None:
        self.text = text
        self._tables, self._udfs, self._image = tables, list(udfs), image
        self._options, self._progress, self._prints = options, progress, prints
        # Of the function that it defines, by name.
        self.files: dict[str, str] = {}
        # Values of its parameters, in the form of the wire.
        self.params: list[Any] | dict[str, Any] | None = None
        # Options for its CSV files, in the form of the wire.
        self.csv: list[dict[str, Any]] = []
        self._folder: Folder | None = None
        self._locations: dict[str, str] | None = None
        self._lock = threading.Lock()
        self._table: Any = None
        self._profile: dict[str, Any] | None = None
        self._query_id: str | None = None

    @property
    def profile(self) -> dict[str, Any] | None:
        """Times, bytes and memory of its last run; None before it ran."""
        return self._profile

    @property
    def query_id(self) -> str | None:
        """The platform's id for its last run; None before it ran."""
        return self._query_id

    @hide_internal_frames
    def collect(self) -> pa.Table:
        """The answer as a `pyarrow.Table`. Runs the query unless it ran before."""
        import pyarrow as pa

        with self._lock:
            if self._table is None:
                answer, batches = self._run()
                parts = list(batches)
                self._table = _plain(pa.Table.from_batches(parts, answer.schema))
            return self._table

    arrow = collect

    @hide_internal_frames
    def pandas(self) -> pd.DataFrame:
        """The answer as a `pandas.DataFrame`."""
        frame: pd.DataFrame = _dtypes.to_pandas(self.collect(), self._types())
        return frame

    @hide_internal_frames
    def polars(self) -> pl.DataFrame:
        """The answer as a `polars.DataFrame`."""
        frame: pl.DataFrame = _dtypes.to_polars(self.collect(), self._types())
        return frame

    def _types(self) -> dict[str, Any]:
        return _dtypes.known(table.types for table in self._tables)

    @hide_internal_frames
    def rows(self) -> list[tuple[Any, ...]]:
        """The answer as a list of tuples."""
        columns = [column.to_pylist() for column in self.collect().columns]
        return list(zip(*columns))

    def batches(self) -> Iterator[Any]:
        """The answer as `pyarrow.RecordBatch`es as they arrive. Runs the query each time, unless it
        was collected. Leaving the loop early cancels the query."""
        if self._table is not None:
            yield from self._table.to_batches()
            return
        try:
            _, batches = self._run()
            yield from batches
        except Error as error:
            raise error.with_traceback(None) from error.__cause__

    __iter__ = batches

    def __repr__(self) -> str:
        lines = [f"<snowmelt query: {' '.join(self.text.split())}"]
        lines += [f"  table {table!r}" for table in self._tables]
        lines += [f"  {'file of functions ' if isinstance(u, Path) else ''}{u}" for u in self._udfs]
        if self._image is not None:
            lines.append(f"  functions in the image {self._image}")
        if self._options:
            shown = dict(self._options)
            if "prices" in shown:
                shown["prices"] = shown["prices"]["file"]
            lines.append("  " + ", ".join(f"{key}={value}" for key, value in shown.items()))
        ran = (
            "not run yet"
            if self._table is None
            else f"{self._table.num_rows} rows: {_columns(self._table)}"
        )
        return "\n".join([*lines, f"  {ran}>"])

    def _repr_html_(self) -> str:
        if self._table is None:
            return f"<pre>{html.escape(repr(self))}</pre>"
        return _as_html(self._table)

    def _run(self) -> tuple[Answer, Iterator[Any]]:
        request = self._request()
        line = _progress.Line(_progress.enabled(self._progress))
        prints = Prints(_prints.enabled(self._prints))
        answer = Answer(lambda event: _show(line, prints, event))
        return answer, self._stream(request, answer, line)

    def _stream(
        self, request: dict[str, Any], answer: Answer, line: _progress.Line
    ) -> Iterator[Any]:
        try:
            with client().stream("POST", "/v1/queries", request) as response:
                yield from answer.batches(response)
            self._profile = answer.profile
            line.end(_progress.summary(answer.profile or {}))
        finally:
            self._query_id = answer.query_id
            line.clear()

    def _request(self) -> dict[str, Any]:
        if self._locations is None:
            self._locations = {table.name: self._location(table) for table in self._tables}
        files = {"files": _files.send(client(), self.files)} if self.files else {}
        params = {"params": self.params} if self.params else {}
        csv = {"csv": self.csv} if self.csv else {}
        return {
            "sql": self.text,
            **params,
            **csv,
            **files,
            "tables": self._locations,
            "udfs": [udf_source(function, self._image) for function in self._udfs],
            "options": self._options,
            "working_folder": os.getcwd(),
            "aws": {key: value for key, value in os.environ.items() if key.startswith("AWS_")},
        }

    def _location(self, table: Table) -> str:
        if table.location is not None:
            return table.location
        if isinstance(client().server, RemoteServer):
            raise make(
                "SM-0121",
                f"table `{table.name}` is in this process, and the platform on another host cannot "
                "read it",
                hint="write it to a bucket, and query it there: 's3://BUCKET/PATH'",
            )
        self._folder = self._folder or Folder()
        return self._folder.write(table)


def udf_source(
    function: AnyUdf | Aggregate | Path, image: str | None, given: Given | None = None
) -> dict[str, Any]:
    """The wire `UdfSource`, with what is `given` or else what the function has. Raises `Error`."""
    inside: dict[str, Any] = {} if image is None else {"image": image}
    if isinstance(function, (Udf, Aggregate)):
        inside |= (given or function.given).to_wire(client())
        required = function.signature.packages if image is None else ()
        code, broadcasts = code_of(function, function.signature.name, required)
        if broadcasts:
            files = _broadcast.send(client(), broadcasts)
            inside["files"] = {**inside.get("files", {}), **files}
        signature = function.signature.to_wire()
        # A function in an image uses the packages of the image.
        packages = signature["packages"] if image is None else []
        signature["packages"] = upload_wheels(client(), packages)
        return {"code": code, "packages": [], "signatures": [signature], **inside}
    try:
        text = function.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise make("SM-0204", f"the file of functions {function} cannot be read: {error}") from None
    code = {"kind": "source", "file": str(function), "text": text}
    return {"code": code, "packages": [], **inside}


def _show(line: _progress.Line, prints: Prints, event: dict[str, Any]) -> None:
    if event.get("event") == "printed":
        line.clear()
        prints.show(event["function"], event["text"])
    elif event.get("event") == "note":
        line.note(event["text"])
    elif event.get("event") in ("phase", "progress"):
        line.show(_progress.query_text(event))


def _plain(table: Any) -> Any:
    """Converts string views, which the engine uses and few other tools support, to strings."""
    import pyarrow as pa

    if not hasattr(pa.types, "is_string_view"):
        return table
    for index, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type) or pa.types.is_binary_view(field.type):
            usual = pa.string() if pa.types.is_string_view(field.type) else pa.binary()
            table = table.set_column(index, field.with_type(usual), table.column(index).cast(usual))
    return table


def _columns(table: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in table.schema)


def _as_html(table: Any) -> str:
    head = "".join(
        f"<th>{html.escape(field.name)}<br><small>{html.escape(str(field.type))}</small></th>"
        for field in table.schema
    )
    body = ""
    columns = [column.slice(0, _ROWS_SHOWN).to_pylist() for column in table.columns]
    for row in zip(*columns):
        cells = "".join(f"<td>{html.escape(str(value))}</td>" for value in row)
        body += f"<tr>{cells}</tr>"
    more = f"<p>{table.num_rows:,} rows</p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
