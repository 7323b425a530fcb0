"""SQL logic test files as records, and answers as the text that such files have.

The format: https://www.sqlite.org/sqllogictest/doc/trunk/about.wiki, with the extensions that
DataFusion's files use: `include`, `statement count`, and an expected error after `error`.
"""

import datetime
import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import numpy
import pyarrow as pa

TOLERANCE = 1e-9


@dataclass
class Record:
    """A statement or query of a file."""

    place: str
    # "ok", "error" or "query".
    kind: str
    sql: str
    sort: str = "nosort"
    expected: list[str] = field(default_factory=list)


def records(file: Path) -> Iterator[Record]:
    """The records of a file that are for DataFusion, with those of included files."""
    lines = file.read_text().splitlines()
    at, only = 0, True
    while at < len(lines):
        words, start = lines[at].split(), at
        at += 1
        if not words or words[0].startswith("#"):
            continue
        if words[0] in ("onlyif", "skipif"):
            only = only and (words[1].lower() == "datafusion") == (words[0] == "onlyif")
            continue
        if words[0] == "halt" and only:
            return
        if words[0] == "include":
            for included in sorted(file.parent.glob(words[1])):
                yield from records(included)
        elif words[0] in ("statement", "query"):
            body, at = _until_blank(lines, at)
            if only:
                yield _record(f"{file.name}:{start + 1}", words, body)
        only = True


def _until_blank(lines: list[str], at: int) -> tuple[list[str], int]:
    end = at
    # A row of spaces does not end it.
    while end < len(lines) and lines[end]:
        end += 1
    return lines[at:end], end


def _record(place: str, words: list[str], body: list[str]) -> Record:
    cut = body.index("----") if "----" in body else len(body)
    sql, expected = "\n".join(body[:cut]).strip().rstrip(";"), body[cut + 1 :]
    if words[1] == "error":
        return Record(place, "error", sql)
    if words[0] == "statement":
        return Record(place, "ok", sql)
    sorts = [word for word in words[2:] if word in ("rowsort", "valuesort", "nosort")]
    return Record(place, "query", sql, sorts[0] if sorts else "nosort", expected)


def difference(record: Record, answer: pa.Table) -> str | None:
    """None if the answer is the expected one. Raises `NotImplementedError` for a type without a
    rendering here."""
    try:
        columns = [[cell(value, column.type) for value in column] for column in answer.columns]
    except (KeyError, OverflowError) as error:
        # A type that pyarrow has no class for, or a date that Python does not have.
        raise NotImplementedError(str(error)) from None
    rows = [list(row) for row in zip(*columns, strict=True)]
    expected = [re.sub(r"\s+", " ", line.strip()) for line in record.expected]
    sort = record.sort
    if sort == "nosort" and not re.search(r"\border\s+by\b", record.sql, re.IGNORECASE):
        # Only one thread would give rows in the order of the files.
        sort = "rowsort"
    if sort == "valuesort":
        ours = sorted(re.sub(r"\s+", " ", value.strip()) for row in rows for value in row)
        expected = sorted(expected)
    else:
        ours = [re.sub(r"\s+", " ", " ".join(row).strip()) for row in rows]
        if sort == "rowsort":
            ours, expected = sorted(ours), sorted(expected)
    hashed = re.fullmatch(r"(\d+) values hashing to (\w+)", " ".join(expected))
    if hashed:
        text = "".join(f"{value}\n" for value in _values(rows, sort))
        # The format wants MD5.
        same = hashlib.md5(text.encode()).hexdigest() == hashed[2]
        return None if same else f"{len(rows)} rows, of which the digest is not {hashed[2]}"
    if len(ours) != len(expected):
        return f"{len(ours)} rows, expected {len(expected)}: {ours[:5]}, expected {expected[:5]}"
    for number, (left, right) in enumerate(zip(ours, expected, strict=True)):
        if left != right and not _close(left, right):
            return f"row {number} is {left!r}, expected {right!r}"
    return None


def _values(rows: list[list[str]], sort: str) -> list[str]:
    """All values in the order of the sort mode."""
    if sort == "valuesort":
        return sorted(value for row in rows for value in row)
    return [value for row in (sorted(rows) if sort == "rowsort" else rows) for value in row]


def _close(left: str, right: str) -> bool:
    """Whether two rows differ only in the last digits of floats."""
    ours, theirs = left.split(), right.split()
    return len(ours) == len(theirs) and all(map(_same_word, ours, theirs))


def _same_word(left: str, right: str) -> bool:
    if left == right:
        return True
    if "." not in left + right:
        return False
    try:
        return math.isclose(float(left), float(right), rel_tol=TOLERANCE, abs_tol=1e-12)
    except ValueError:
        return False


def cell(value: pa.Scalar, kind: pa.DataType) -> str:
    """A value as DataFusion's runner writes it."""
    if pa.types.is_dictionary(kind):
        return cell(value.value if value.is_valid else pa.scalar(None), kind.value_type)
    if not value.is_valid or pa.types.is_null(kind):
        return "NULL"
    if pa.types.is_floating(kind):
        return _float(value.as_py(), kind)
    if pa.types.is_decimal(kind):
        return _plain(value.as_py())
    if isinstance(value.as_py(), str):
        return value.as_py().rstrip("\n").replace("\0", "\\0") or "(empty)"
    return _nested(value, kind)


def _float(number: float, kind: pa.DataType) -> str:
    """The shortest digits of the type, rounded to twelve places."""
    if math.isnan(number) or math.isinf(number):
        return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
    exact = Decimal(_shortest(number, kind))
    places = Decimal("1e-12")
    return _plain(exact if abs(exact) > 10**15 else exact.quantize(places, ROUND_HALF_EVEN))


def _shortest(number: float, kind: pa.DataType) -> str:
    return str(number if pa.types.is_float64(kind) else numpy.float32(number))


def _plain(number: Decimal) -> str:
    """Without an exponent, or zeros at the end of the fraction."""
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _nested(value: pa.Scalar, kind: pa.DataType) -> str:
    """A value as Arrow displays it, also inside lists and structs."""
    if not value.is_valid:
        return "NULL"
    if pa.types.is_boolean(kind):
        return str(value.as_py()).lower()
    if pa.types.is_integer(kind) or pa.types.is_date32(kind):
        return str(value.as_py())
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return _timestamp(value, kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"[{', '.join(_nested(one, kind.value_type) for one in value)}]"
    if pa.types.is_struct(kind):
        parts = (f"{f.name}: {_nested(value[f.name], f.type)}" for f in kind)
        return f"{{{', '.join(parts)}}}"
    if isinstance(value.as_py(), str):
        return str(value.as_py())
    if pa.types.is_floating(kind) and 1e-5 < abs(value.as_py()) < 1e16:
        return _shortest(value.as_py(), kind)
    raise NotImplementedError(str(kind))


def _timestamp(value: pa.Scalar, kind: pa.DataType) -> str:
    units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    seconds, rest = divmod(value.value, units[kind.unit])
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    if not rest:
        return moment.isoformat()
    digits = f"{rest * (10**9 // units[kind.unit]):09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{moment.isoformat()}.{digits}"
