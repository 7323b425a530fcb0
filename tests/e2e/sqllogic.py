"""Runs DataFusion's SQL logic test files through Snowmelt.

Snowmelt has no statements that make tables. DataFusion's own Python package runs those of a file,
and each table that a query names is written as Parquet files, which Snowmelt reads. What Snowmelt
cannot run is skipped by a reason, and counted. By hand, with the reasons and failures of each file,
for some files or all:

    python tests/e2e/sqllogic.py --workers 3 joins.slt union.slt
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.parquet as pq
from sqllogic_known import FILES, FOLDERS, KNOWN
from sqllogic_text import Record, difference, records

import snowmelt as sm

CRATE = "datafusion-sqllogictest"
VERSION = "55.2.0"
QUERY = re.compile(r"\s*\(*\s*(select|with|values|from)\b", re.IGNORECASE)
# Settings that change the meaning of SQL, with their defaults. The others change only plans, and
# queries are run without them.
MEANING = {
    "datafusion.catalog.default_catalog": "datafusion",
    "datafusion.catalog.default_schema": "public",
    "datafusion.execution.enable_ansi_mode": "false",
    "datafusion.execution.enable_recursive_ctes": "true",
    "datafusion.execution.time_zone": "",
    "datafusion.sql_parser.default_null_ordering": "nulls_max",
    "datafusion.sql_parser.dialect": "generic",
    "datafusion.sql_parser.enable_ident_normalization": "true",
    "datafusion.sql_parser.enable_options_value_normalization": "false",
    "datafusion.sql_parser.map_string_types_to_utf8view": "true",
    "datafusion.sql_parser.parse_float_as_decimal": "false",
    "datafusion.sql_parser.support_varchar_with_length": "true",
    "time zone": "",
    "timezone": "",
}
SETTING = re.compile(r"\s*(set|reset)\s+(time zone|[\w.]+)\s*(?:=|to)?\s*(.*)", re.IGNORECASE)
LOCATION = re.compile(r"location\s+'([^']+)'", re.IGNORECASE)

# Errors of Snowmelt that are no failure, with the reason that is counted.
REFUSALS = {
    r"^SM-0102: there is no .*function": "function that the build leaves out",
    r"^SM-0105: there is no file": "file that the crate does not have",
    r"^SM-0101": "statement or syntax that Snowmelt refuses",
}
# What Parquet does not keep: names of types, constraints and field names.
NOT_KEPT = re.compile(r"arrow_typeof|arrow_field|arrow_metadata", re.IGNORECASE)


def crate_files() -> Path:
    """The folder of the test files, where Cargo unpacked the crate; fetched if it is missing."""
    found = _unpacked()
    if found is None:
        with tempfile.TemporaryDirectory(prefix="sm-") as name:
            folder = Path(name)
            (folder / "src").mkdir()
            (folder / "src" / "lib.rs").touch()
            (folder / "Cargo.toml").write_text(
                '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n'
                f'{CRATE} = {{ version = "={VERSION}", default-features = false }}\n[workspace]\n'
            )
            subprocess.run(["cargo", "fetch", "--quiet"], cwd=folder, check=True)
        found = _unpacked()
    assert found is not None, f"Cargo did not unpack {CRATE} {VERSION}"
    return found


def _unpacked() -> Path | None:
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    return next(home.glob(f"registry/src/*/{CRATE}-{VERSION}/test_files"), None)


@dataclass
class Outcome:
    """What became of the records of a file."""

    passed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    # By place in the file: what is wrong, and the SQL.
    failed: dict[str, str] = field(default_factory=dict)


class Run:
    """One file: its tables in DataFusion, and as Parquet files in a folder."""

    def __init__(self, file: Path, folder: Path, workers: int) -> None:
        self.file, self.folder, self.workers = file, folder, workers
        self.outcome = Outcome()
        self._context = datafusion.SessionContext()
        self._written: dict[str, Path] = {}
        self._count = 0
        # Names of tables that could not be made, and whether a setting changed the meaning of SQL.
        self._missing: set[str] = set()
        self._altered: set[str] = set()

    def run(self) -> Outcome:
        for record in records(self.file):
            try:
                problem = self._record(record)
            except Skipped as skipped:
                self.outcome.skipped[str(skipped)] += 1
                continue
            if problem is None:
                self.outcome.passed += 1
            else:
                self.outcome.failed[record.place] = f"{problem}\n{record.sql}"
        return self.outcome

    def _record(self, record: Record) -> str | None:
        """What is wrong, or None. Raises `Skipped`."""
        word = record.sql.split(None, 1)[0].lower() if record.sql.strip() else ""
        if not QUERY.match(record.sql):
            if word in ("explain", "show", "describe", "prepare", "execute", "deallocate"):
                raise Skipped(word.upper())
            if record.kind == "error":
                raise Skipped("error of a statement other than a query")
            self._statement(record.sql, word)
        return self._query(record)

    def _statement(self, sql: str, word: str) -> None:
        """Runs a statement that makes or changes tables. Raises `Skipped` in any case."""
        if word in ("set", "reset"):
            self._set(sql)
            raise Skipped("setting")
        named = words(sql)
        location = LOCATION.search(sql)
        try:
            if word == "copy" or re.search(r"location\s*\(", sql, re.IGNORECASE):
                raise FileNotFoundError("files of a COPY, or a list of files")
            if location:
                # The crate has few of the files that the tests read.
                path = (self.file.parent.parent / location[1]).resolve(strict=True)
                sql = sql.replace(location[1], str(path))
            self._context.sql(sql).collect()
        except BaseException as error:  # A panic of DataFusion is not an `Exception`.
            if isinstance(error, KeyboardInterrupt):
                raise
            self._missing |= named
            raise Skipped("statement that DataFusion's Python package cannot run") from None
        self._missing -= named
        self._written.clear()
        raise Skipped("statement that makes or changes tables, run by DataFusion")

    def _set(self, sql: str) -> None:
        match = SETTING.match(sql)
        name = match[2].lower() if match else sql
        value = match[3].strip("'\" ").lower() if match else ""
        default = match is not None and (match[1].lower() == "reset" or value == MEANING.get(name))
        self._altered.discard(name)
        if name in MEANING and not default:
            self._altered.add(name)

    def _query(self, record: Record) -> str | None:
        if self._altered:
            raise Skipped("query after a setting that changes the meaning of SQL")
        tables = self._tables(record.sql)
        if tables and NOT_KEPT.search(record.sql):
            raise Skipped("names of types and fields, which Parquet changes")
        try:
            query = sm.sql(record.sql, workers=self.workers, udfs=[], timeout="1m", **tables)
            answer = query.collect()
        except sm.Error as error:
            if record.kind == "error":
                return None
            text = f"{error.code}: {error.message}"
            unknown = re.match(r"SM-0102: there is no table `(\w+)`", text)
            if unknown and unknown[1] not in self._names():
                raise Skipped("table that only DataFusion's runner in Rust makes") from None
            for pattern, reason in REFUSALS.items():
                if re.search(pattern, text):
                    raise Skipped(reason) from None
            return text
        if record.kind == "error":
            return f"an answer of {answer.num_rows} rows, expected an error"
        try:
            return difference(record, answer) if record.kind == "query" else None
        except NotImplementedError as kind:
            raise Skipped("type whose text this runner does not know") from kind

    def _tables(self, sql: str) -> dict[str, Any]:
        """The Parquet files of the tables that a query names."""
        named = words(sql)
        if re.search(r"information_schema|\bpublic\.|\bdatafusion\.", sql, re.IGNORECASE):
            raise Skipped("name of a schema")
        if "_" in named or "$" in sql:
            raise Skipped("parameter")
        if named & self._missing - self._names():
            raise Skipped("table that could not be made")
        return {name: str(self._file(name)) for name in self._names() if name.lower() in named}

    def _names(self) -> set[str]:
        return set(self._context.catalog().schema("public").names())

    def _file(self, name: str) -> Path:
        """The folder of a table, written when it is first needed."""
        if name not in self._written:
            try:
                table = self._context.table(f'"{name}"').to_arrow_table()
                self._count += 1
                folder = self.folder / f"{self._count}-{name}"
                folder.mkdir()
                half = -(-table.num_rows // 2) or 1
                for part in range(2 if table.num_rows > 1 else 1):
                    file = folder / f"part-{part}.parquet"
                    pq.write_table(table.slice(part * half, half), file, row_group_size=half)
            except (pa.ArrowException, NotImplementedError) as error:
                raise Skipped("table with a type that pyarrow cannot write") from error
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                raise Skipped("table that could not be read") from None
            self._written[name] = folder
        return self._written[name]


class Skipped(Exception):
    """A record is not run on Snowmelt; the text is the reason."""


def words(sql: str) -> set[str]:
    return set(re.findall(r"\w+", re.sub(r"'(?:[^']|'')*'|--[^\n]*", " ", sql).lower()))


def run_files(names: list[str], folder: Path, workers: int, clients: int) -> dict[str, Outcome]:
    """The outcome of each file."""
    root = crate_files()

    def one(name: str) -> Outcome:
        place = folder / name.replace("/", "-")
        place.mkdir()
        return Run(root / name, place, workers).run()

    with ThreadPoolExecutor(clients) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def all_files() -> list[str]:
    """The files of the crate that Snowmelt can run."""
    root = crate_files()
    names = [str(file.relative_to(root)) for file in sorted(root.rglob("*.slt"))]
    return [name for name in names if name not in FILES and name.split("/")[0] not in FOLDERS]


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
    from suites import CLIENTS, warm_server

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    names = given.files or all_files()
    with tempfile.TemporaryDirectory(prefix="sm-") as name, warm_server(Path(name)):
        tables = Path(name) / "tables"
        tables.mkdir()
        outcomes = run_files(names, tables, given.workers, CLIENTS)
    unknown = 0
    for file, outcome in outcomes.items():
        print(f"{file}: {outcome.passed} passed, {len(outcome.failed)} failed, {outcome.skipped}")
        for place, problem in outcome.failed.items():
            unknown += place not in KNOWN
            print(f"  {place}: {KNOWN.get(place, problem)}")
    passed = sum(outcome.passed for outcome in outcomes.values())
    print(f"{passed} passed, {unknown} failed for no known reason")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
