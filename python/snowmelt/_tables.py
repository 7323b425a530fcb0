"""Tables that a query reads: locations of files, and frames in memory.

Invariant: a frame is a snapshot taken when the query was created; its file is in a temporary folder
that is deleted with the query.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Union

from . import _dtypes
from .errors import make

# A file for each worker to read, row groups for each thread of it.
_FILE_ROWS = 1 << 20
_GROUP_ROWS = 1 << 17

_FRAME_MODULES = {"pandas", "polars", "pyarrow"}
_FRAME_NAMES = {"DataFrame", "LazyFrame", "Table", "RecordBatch", "RecordBatchReader"}
_FRAME_NAMES |= {"Dataset", "FileSystemDataset", "InMemoryDataset", "UnionDataset"}

Location = Union[str, "os.PathLike[str]"]


def is_frame(thing: Any) -> bool:
    """Whether an object is a frame in memory; imports no package for this check."""
    kind = type(thing)
    return kind.__module__.partition(".")[0] in _FRAME_MODULES and kind.__name__ in _FRAME_NAMES


class Table:
    """One table of a query: a location, or an Arrow table or dataset with its schema."""

    def __init__(self, name: str, given: Any) -> None:
        self.name = name
        self.location: str | None = None
        self.data: Any = None
        # Types of columns that Arrow does not preserve.
        self.types: dict[str, Any] = {}
        if isinstance(given, (str, os.PathLike)):
            self.location = os.fspath(given)
        else:
            given = _with_index(given)
            self.data = _arrow(name, given)
            self.types = _types(given)

    def __repr__(self) -> str:
        if self.location is not None:
            return f"{self.name}: {self.location}"
        columns = ", ".join(f"{field.name} {field.type}" for field in self.data.schema)
        return f"{self.name}: ({columns})"


def _arrow(name: str, given: Any) -> Any:
    """The frame as a `pyarrow.Table`, or a pyarrow dataset unchanged."""
    import pyarrow as pa

    module, kind = _library(given)
    try:
        if module == "pyarrow" and kind.endswith("Dataset"):
            return given
        if isinstance(given, pa.Table):
            return given
        if isinstance(given, pa.RecordBatch):
            return pa.Table.from_batches([given])
        if module == "pandas" and kind == "DataFrame":
            # Arrow shares the memory of pandas' numbers, which may be changed in place later.
            return pa.Table.from_pandas(given.copy(), preserve_index=False)
        if module == "polars":
            return _from_polars(given.collect() if kind == "LazyFrame" else given)
        if hasattr(given, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(given).read_all()
    except pa.ArrowException as error:
        raise make("SM-0103", f"table `{name}` cannot be converted to Arrow: {error}") from None
    raise make(
        "SM-0110",
        f"table `{name}` is a {type(given).__qualname__}",
        hint="give a path or URL of data files, or a pandas, polars or pyarrow table",
    )


def _library(given: Any) -> tuple[str, str]:
    return type(given).__module__.partition(".")[0], type(given).__name__


def _with_index(given: Any) -> Any:
    """A pandas frame with the named levels of its index as columns; SQL has no index."""
    if _library(given) != ("pandas", "DataFrame"):
        return given
    levels = [n for n in given.index.names if n is not None and n not in given.columns]
    return given.reset_index(level=levels) if levels else given


def _types(given: Any) -> dict[str, Any]:
    library, kind = _library(given)
    if (library, kind) == ("pandas", "DataFrame"):
        return _dtypes.of_pandas(given)
    return _dtypes.of_polars(given) if (library, kind) == ("polars", "DataFrame") else {}


def _from_polars(frame: Any) -> Any:
    import polars as pl

    # Some versions of pyarrow cannot write the newest types (string views) to Parquet.
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


class Folder:
    """The temporary folder of a query's frames; deleted with the query, at the latest at exit."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="snowmelt-tables-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def write(self, table: Table) -> str:
        """Writes a frame as Parquet files and returns their folder."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        folder = Path(self.path, table.name)
        options = ds.ParquetFileFormat().make_write_options(compression="lz4")
        try:
            ds.write_dataset(
                table.data,
                folder,
                format="parquet",
                file_options=options,
                max_rows_per_file=_FILE_ROWS,
                max_rows_per_group=_GROUP_ROWS,
                # One writer keeps the order of the rows.
                use_threads=False,
            )
        except (pa.ArrowException, OSError) as error:
            raise make("SM-0114", f"table `{table.name}` cannot be written: {error}") from None
        if not any(folder.glob("*.parquet")):
            _write_empty(table, folder)
        return str(folder)


def _write_empty(table: Table, folder: Path) -> None:
    """Writes a file without rows, so that an empty table has its columns."""
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    pq.write_table(table.data.schema.empty_table(), folder / "part-0.parquet")
