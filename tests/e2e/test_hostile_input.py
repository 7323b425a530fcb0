"""Untrusted input is parsed in sandboxes: it can end its own query, never the server."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt

# A function whose reply claims to decompress to 2^62 bytes: it writes to the platform's socket.
LIAR = """
import os, struct
import pyarrow as pa

def compressed():
    schema = pa.schema([pa.field("r", pa.int64())])
    batch = pa.record_batch([pa.array([7], pa.int64())], schema=schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, schema, options=options) as stream:
        stream.write_batch(batch)
    whole = sink.getvalue().to_pybytes()
    head = schema.serialize().to_pybytes()
    body = whole[len(head):-8]
    # A compressed buffer begins with the number of bytes that it decompresses to.
    plain = struct.pack("<q", 8)
    at = body.rindex(plain)
    return head, body[:at] + struct.pack("<q", 1 << 62) + body[at + 8:]

def frame(kind, payload):
    return struct.pack("<IBxxx", len(payload), kind) + payload

@sm.udf(batch="arrow", packages=["pyarrow"])
def lie(x: int) -> int:
    schema, batch = compressed()
    for name in os.listdir("/proc/self/fd"):
        try:
            # The list has the descriptor of its own folder as well.
            if "socket" in os.readlink(f"/proc/self/fd/{name}"):
                os.write(int(name), frame(6, schema) + frame(7, batch))
        except OSError:
            pass
    return x
"""


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def claims_row_groups(path: Path, count: int) -> None:
    """A Parquet file whose footer, in Thrift's compact form, claims a number of row groups."""

    def integer(header: int, value: int) -> bytes:
        return bytes([header]) + varint(value << 1)

    root = b"\x48\x06schema" + integer(0x15, 1) + b"\0"
    column = integer(0x15, 2) + integer(0x25, 0) + b"\x18\x01a\0"
    footer = integer(0x15, 1) + b"\x19\x2c" + root + column + integer(0x16, 10)
    footer += b"\x19\xfc" + varint(count)
    path.write_bytes(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")


def nested(path: Path, depth: int) -> None:
    kind: pa.DataType = pa.int64()
    for _ in range(depth):
        kind = pa.struct([("f", kind)])
    pq.write_table(pa.schema([("a", kind)]).empty_table(), path)


@pytest.fixture
def up(alone: Snowmelt) -> Iterator[Snowmelt]:
    """A server, which must be the same process after the test, and must still answer."""
    alone.run("up").succeeded()
    before = pid(alone)
    yield alone
    assert pid(alone) == before
    assert alone.rows("select 1 + 1 as two") == [{"two": 2}]
    alone.run("down").succeeded()


def pid(snowmelt: Snowmelt) -> int:
    return int(json.loads(snowmelt.run("status", "-o", "json").succeeded().out)["pid"])


def test_a_footer_that_claims_too_much(up: Snowmelt, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile.parquet"
    claims_row_groups(hostile, 1 << 28)
    assert hostile.stat().st_size < 142
    # Whether so much can be reserved depends on the allocator; the server is not affected.
    report = up.sql(f"select * from '{hostile}'").report
    assert report["code"] in ("SM-0106", "SM-0403"), report
    assert "hostile.parquet" in json.dumps(report)


def test_a_schema_nested_a_thousand_deep(up: Snowmelt, tmp_path: Path) -> None:
    nested(tmp_path / "deep.parquet", 1000)
    up.sql(f"select * from '{tmp_path / 'deep.parquet'}'").failed_with("SM-0106", "deep.parquet")


def test_expressions_of_a_thousand_terms(up: Snowmelt, data: Path) -> None:
    table = f"from '{data / 'customer'}'"
    either = " or ".join(f"c_custkey = {n} and c_acctbal > {n}" for n in range(1000))
    assert up.rows(f"select count(*) < 1000 as few {table} where {either}") == [{"few": True}]
    assert up.rows("select " + "+".join(["1"] * 1000) + " as n") == [{"n": 1000}]
    terms = "+".join(["c_custkey"] * 1000)
    assert up.rows(f"select max({terms}) = 1000 * max(c_custkey) as same {table}") == [
        {"same": True}
    ]


def test_a_function_that_claims_a_huge_batch(
    up: Snowmelt, data: Path, udf_file: Callable[[str], Path]
) -> None:
    udfs = udf_file(LIAR)
    table = f"from '{data / 'customer'}'"
    # Above the cut: the driver decodes. Below it: a worker.
    for sql in [f"select lie(max(c_custkey)) {table}", f"select max(lie(c_custkey)) {table}"]:
        up.sql(sql, "--udf", udfs).failed_with("SM-0507", "compressed")


def test_a_query_that_takes_long_to_plan_ends_in_time(up: Snowmelt, data: Path) -> None:
    terms = " or ".join(f"c_custkey % {n + 2} = {n} and c_acctbal > {n}" for n in range(1500))
    sql = f"select count(*) from '{data / 'customer'}' where {terms}"
    up.sql(sql, "--timeout", "10ms").failed_with("SM-0112")
