"""Arrow messages of a sandbox: a compressed one is refused by each reader before it expands."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from snowmelt import _ipc, _outcomes
from snowmelt._answer import Answer
from snowmelt._runtime import frames
from snowmelt._runtime.codecs import CODECS, Malformed

SCHEMA = pa.schema([pa.field("return", pa.string())])
# 64 MiB of one letter: some kilobytes on the wire.
ROWS = pa.record_batch([pa.array(["x" * (64 << 20)])], schema=SCHEMA)


def stream(codec: str | None, batch: pa.RecordBatch = ROWS, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    written = pa.ipc.IpcWriteOptions(compression=codec, **options)
    with pa.ipc.new_stream(sink, batch.schema, options=written) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def messages(codec: str | None, batch: pa.RecordBatch = ROWS) -> list[bytes]:
    """The messages of a stream, each as its own bytes."""
    return [
        bytes(one.serialize()) for one in pa.ipc.MessageReader.open_stream(stream(codec, batch))
    ]


@pytest.fixture
def nothing_expanded() -> Iterator[None]:
    """Arrow has not allocated what a message would expand to."""
    before = pa.total_allocated_bytes()
    yield
    assert pa.total_allocated_bytes() - before < 16 << 20


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_messages_are_refused_by_every_reader(
    codec: str, nothing_expanded: None
) -> None:
    whole, (schema, batch) = stream(codec), messages(codec)
    with pytest.raises(_ipc.Refused, match="compressed"):
        _ipc.read_batch(batch, SCHEMA)
    for read in (_ipc.read_table, _ipc.check, _ipc.rewritten):
        with pytest.raises(_ipc.Refused, match="compressed"):
            read(whole)
    text = base64.b64encode(whole).decode()
    for sent in (["arrow", "table", text], ["arrow", "array", text], ["polars", "frame", text]):
        answer = {"results": json.dumps([[True, json.dumps(sent)]])}
        [(succeeded, error)] = _outcomes.read(answer, 1, "plain")
        assert not succeeded and "compressed" in str(error), error
    parts = [(frames.SCHEMA, schema), (frames.BATCH, batch), (frames.END, b"")]
    source = b"".join(struct.pack("<IB3x", len(payload), kind) + payload for kind, payload in parts)
    with pytest.raises(Exception, match="compressed") as refused:
        list(Answer(lambda _: None).batches(io.BytesIO(source)))
    assert getattr(refused.value, "code", None) == "SM-0507"


def test_a_compressed_dictionary_and_older_versions_are_refused() -> None:
    words = pa.record_batch({"return": pa.array(["a" * 1000, "b"]).dictionary_encode()})
    assert _ipc.read_table(stream(None, words)).to_batches() == [words]
    dictionary = messages("zstd", words)[1]
    assert pa.ipc.read_message(dictionary).type == "dictionary"
    # Followed by nothing that is compressed.
    schema, _, batch = messages(None, words)
    with pytest.raises(_ipc.Refused, match="compressed"):
        _ipc.read_table(schema + dictionary + batch)
    # Messages of version 4 name a compression in their metadata.
    with pytest.raises(_ipc.Refused):
        _ipc.read_table(stream(None, metadata_version=pa.ipc.MetadataVersion.V4))


def test_messages_of_all_layouts_are_read() -> None:
    small = pa.record_batch({"return": ["a", None], "l": [[1], None], "n": [None, None]})
    for legacy in (False, True):
        whole = stream(None, small, use_legacy_format=legacy)
        assert _ipc.read_table(whole).to_batches() == [small]
        assert pa.ipc.open_stream(_ipc.rewritten(whole)).read_all().to_batches() == [small]
    assert _ipc.read_batch(messages(None, small)[1], small.schema) == small
    # pyarrow does not have this type, and polars does.
    frame = pl.DataFrame({"n": pl.Series([1 << 100, None], dtype=pl.Int128)})
    sink = io.BytesIO()
    frame.write_ipc_stream(sink)
    assert pl.read_ipc_stream(io.BytesIO(_ipc.rewritten(sink.getvalue()))).equals(frame)


def test_a_damaged_header_is_an_error_and_never_passes_for_a_whole_one() -> None:
    _, batch = messages("zstd", pa.record_batch([pa.array(["x" * 1000])], schema=SCHEMA))
    length = 8 + struct.unpack_from("<i", batch, 4)[0]
    for place in range(8, length):
        for value in (0, 1, 0x7F, 0xFF):
            damaged = batch[:place] + bytes([value]) + batch[place + 1 :]
            try:
                read = _ipc.read_batch(damaged, SCHEMA)
            except (pa.ArrowException, OSError, ValueError, EOFError):
                continue
            # The header says that it is not compressed: then nothing was expanded.
            assert read.nbytes <= len(damaged)


def test_other_formats_do_not_expand_either(nothing_expanded: None) -> None:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([ROWS]), sink, compression="zstd")
    with pytest.raises(Malformed, match="compressed"):
        CODECS["parquet"].read_result(sink.getvalue(), SCHEMA)
    batch = pa.record_batch({"return": ["a", None]})
    written = CODECS["parquet"].result(batch)
    assert CODECS["parquet"].read_result(written, SCHEMA) == batch
    claims = io.BytesIO()
    for shape in ((1 << 50,), (-1,), (3, 1)):
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        claims.seek(0)
        np.lib.format.write_array_header_1_0(claims, header)
        claims.write(bytes(64))
        with pytest.raises(Malformed):
            CODECS["numpy"].read_result(
                claims.getvalue(), pa.schema([pa.field("return", pa.float64())])
            )
