"""The parts of the client that need no platform: answers, errors, amounts, names, tables."""

from __future__ import annotations

import datetime
import gc
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from peer import run_program

import snowmelt as sm
from snowmelt import _amounts, _client, _names, _progress, _server, errors
from snowmelt._answer import Answer
from snowmelt._runtime import frames
from snowmelt._tables import Folder, Table

BATCH = pa.record_batch(
    {"n": [1, None, 3], "s": pa.array(["a", "b", "a"]).dictionary_encode(), "t": ["x", "", None]}
)


def _frame(kind: int, payload: Any = b"") -> bytes:
    data = bytes(payload) if not isinstance(payload, dict) else json.dumps(payload).encode()
    return len(data).to_bytes(4, "little") + bytes([kind, 0, 0, 0]) + data


def _stream_frames(*batches: pa.RecordBatch) -> bytes:
    """Schema and batches with their dictionaries, split into frames as by the platform."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        done = len(batches[0].schema.serialize())
        parts = [_frame(frames.SCHEMA, batches[0].schema.serialize())]
        for batch in batches:
            writer.write_batch(batch)
            parts.append(_frame(frames.BATCH, sink.getvalue()[done:]))
            done = len(sink.getvalue())
    return b"".join(parts)


def _read(*parts: bytes) -> tuple[Answer, list[pa.RecordBatch], list[Any]]:
    events: list[Any] = []
    answer = Answer(events.append)
    return answer, list(answer.batches(io.BytesIO(b"".join(parts)))), events


@pytest.mark.parametrize("tenant", ["acme", None])
def test_a_request_names_its_tenant_in_a_header(tenant: str | None) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        client = _client.Client(_server.Server("socket", None, None), tenant)
        sent = client._send(here, "POST", "/v1/functions", {"n": 1})
        assert sent.getresponse().status == 204
        request = there.recv(4096).decode()
    assert ("snowmelt-tenant: acme" in request) == (tenant is not None)


def test_the_tenant_is_that_of_the_environment_unless_one_is_named() -> None:
    program = """
        from snowmelt import _client, _server
        _server.current = lambda: None
        print(_client.client().tenant, _client.client("other").tenant)
    """
    program = textwrap.dedent(program)
    assert run_program(program, SNOWMELT_TENANT="acme").split() == ["acme", "other"]
    assert run_program(program, SNOWMELT_TENANT="").split() == ["None", "other"]


ACCEPTED = _frame(frames.EVENT, {"event": "accepted", "query": "q-7"})
PROFILE = _frame(frames.PROFILE, {"rows": 6})


def test_an_answer_is_read_with_events_dictionaries_and_profile() -> None:
    answer, batches, events = _read(
        ACCEPTED, _stream_frames(BATCH, BATCH), PROFILE, _frame(frames.END)
    )
    assert [batch.to_pydict() for batch in batches] == [BATCH.to_pydict()] * 2
    assert (answer.query_id, answer.profile) == ("q-7", {"rows": 6})
    assert events == [{"event": "accepted", "query": "q-7"}]


def test_a_truncated_answer_is_an_error() -> None:
    whole = ACCEPTED + _stream_frames(BATCH) + PROFILE + _frame(frames.END)
    for end in range(0, len(whole), 37):
        with pytest.raises(sm.PlatformError, match="incomplete") as broken:
            _read(whole[:end])
        assert broken.value.code == "SM-0507"


def test_an_answer_without_valid_arrow_data_is_an_error() -> None:
    for broken in (_frame(frames.SCHEMA, b"no arrow"), _frame(frames.BATCH, b"too early")):
        with pytest.raises(sm.PlatformError, match="incomplete"):
            _read(broken, _frame(frames.END))
    schema = _frame(frames.SCHEMA, BATCH.schema.serialize())
    with pytest.raises(sm.PlatformError, match="invalid Arrow data"):
        _read(schema, _frame(frames.BATCH, BATCH.schema.serialize()))


def test_a_failure_after_rows_is_raised_with_the_query() -> None:
    report = {"code": "SM-0201", "message": "`f` raised ValueError", "hint": "do not"}
    with pytest.raises(sm.FunctionError) as failed:
        _read(ACCEPTED, _stream_frames(BATCH), _frame(frames.FAILURE, report))
    error = failed.value
    assert (error.code, error.hint, error.query_id) == ("SM-0201", "do not", "q-7")
    assert not error.retryable and sm.Error({"retryable": True}).retryable


def test_errors_are_rendered_as_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = {
        "code": "SM-0201",
        "message": "`country` failed in 3 of 2000 calls",
        "location": {"file": str(tmp_path / "udfs.py"), "line": 12, "within": "country()"},
        "excerpt": ["return parse(phone).region", "NumberParseException: too short"],
        "input": 'phone = "+4" (partition 417, row 88)',
        "hint": 'return null for bad input with @sm.udf(on_error="null")',
    }
    monkeypatch.chdir(tmp_path)
    error = errors.from_report(report)
    assert str(error) == (
        "error[SM-0201]: `country` failed in 3 of 2000 calls\n"
        "  --> udfs.py:12 in country()\n"
        "   |  return parse(phone).region\n"
        "   |  NumberParseException: too short\n"
        'input: phone = "+4" (partition 417, row 88)\n'
        'hint: return null for bad input with @sm.udf(on_error="null")'
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("SM-0101", sm.QueryError),
        ("SM-0213", sm.FunctionError),
        ("SM-0205", sm.SignatureError),
        ("SM-0301", sm.PackageError),
        ("SM-0401", sm.PlatformError),
        ("SM-0901", sm.PlatformError),
        ("?", sm.PlatformError),
    ],
)
def test_codes_choose_the_class(code: str, kind: type) -> None:
    assert type(errors.from_report({"code": code, "message": ""})) is kind


def test_amounts_are_parsed_as_by_the_platform() -> None:
    assert _amounts.memory_bytes("512MiB") == 512 << 20
    assert _amounts.memory_bytes("1.5 GiB") == 1536 << 20
    assert _amounts.memory_bytes("2GB") == 2 * 10**9
    assert _amounts.memory_bytes(77) == 77
    assert _amounts.cpu_millis("500m") == 500
    assert _amounts.cpu_millis(1.5) == 1500
    assert _amounts.milliseconds("250ms") == 250
    assert _amounts.milliseconds("2m") == 120_000
    assert _amounts.milliseconds(0.5) == 500
    assert _amounts.milliseconds(datetime.timedelta(hours=1)) == 3_600_000


def test_invalid_amounts_are_refused_with_an_example() -> None:
    for bad in ("", "MiB", "-1", "5 parsecs", "nan", True, None):
        with pytest.raises(sm.QueryError, match="write for example 512MiB"):
            _amounts.memory_bytes(bad)  # type: ignore[arg-type]
        with pytest.raises(sm.QueryError, match="write for example 250ms"):
            _amounts.milliseconds(bad)  # type: ignore[arg-type]
    with pytest.raises(sm.QueryError, match="write for example 500m"):
        _amounts.cpu_millis(0)


def test_functions_and_frames_of_the_caller_are_found() -> None:
    @sm.udf
    def score(v: int) -> int:
        return v

    @sm.udf
    def unused(v: int) -> int:
        return v

    sales, other = pd.DataFrame({"v": [1]}), pd.DataFrame({"v": [2]})  # noqa: F841
    places = [1]  # no frame, whatever the text says
    text = """
        select score (v), 'unused(1)', count(*) -- unused(2)
        from sales s, places /* join other */ join "other" on true
    """
    here = sys._getframe()
    assert _names.called_udfs(text, here) == [score]
    assert list(_names.read_frames(text, here, set())) == ["sales"]
    assert _names.read_frames(text, here, {"sales"}) == {}
    assert len(other) == len(places) and unused(1) == 1


def _pandas_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Int64": pd.array([2**60 + 1, None], "Int64"),
            "UInt8": pd.array([1, 2], "UInt8"),
            "boolean": pd.array([True, None], "boolean"),
            "Float32": pd.array([1.5, None], "Float32"),
            "string": pd.array(["a", None], "string"),
            "category": pd.Categorical(["lo", None], categories=["mid", "lo"], ordered=True),
            "int32": np.array([1, 2], "int32"),
            "text": ["a", None],
        },
        index=pd.Index(["k", "l"], name="key"),
    )


def _answered(query: sm.Query, table: pa.Table) -> sm.Query:
    """The query with a given answer of the platform."""
    query._table = table
    return query


def test_pandas_frames_keep_their_types() -> None:
    frame = _pandas_frame()
    query = sm.sql("select * from frame", frame=frame)
    pd.testing.assert_frame_equal(
        _answered(query, query._tables[0].data).pandas(), frame.reset_index()
    )


def test_integers_and_booleans_with_nulls_keep_their_type() -> None:
    table = pa.table(
        {
            "i": pa.array([2**60 + 1, None]),
            "u": pa.array([1, None], pa.uint16()),
            "b": pa.array([True, None]),
            "whole": [1, 2],
        }
    )
    twice = table.append_column("i", table["i"])
    frame = _answered(sm.sql("select 1"), twice).pandas()
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "UInt16", "boolean", "int64", "Int64"]
    assert frame.iloc[0, 0] == 2**60 + 1 and frame.iloc[1, 0] is pd.NA


def test_input_types_are_not_applied_to_other_values() -> None:
    query = sm.sql("select * from frame", frame=_pandas_frame())
    other = pa.table(
        {
            "Int64": ["text"],
            "category": pa.array(["unknown"]).dictionary_encode(),
            "boolean": [1.5],
        }
    )
    frame = _answered(query, other).pandas()
    assert frame.values.tolist() == [["text", "unknown", 1.5]]


def test_polars_enums_are_kept() -> None:
    enum = pl.Enum(["b", "a"])
    frame = pl.DataFrame({"e": pl.Series(["a", None], dtype=enum), "n": [1, None]})
    query = sm.sql("select * from frame", frame=frame)
    made = _answered(query, query._tables[0].data).polars()
    assert made.schema == {"e": enum, "n": pl.Int64} and made.rows() == frame.rows()


FRAME = {"n": [1, None, 3], "s": ["a", None, "c"]}
ARROW = pa.table(FRAME)


@pytest.mark.parametrize(
    "given",
    [
        ARROW,
        ARROW.to_batches()[0],
        ds.dataset(ARROW),
        pd.DataFrame({"n": pd.array([1, None, 3], "Int64"), "s": FRAME["s"]}, index=[5, 6, 7]),
        pl.DataFrame(FRAME),
        pl.LazyFrame(FRAME),
        pa.RecordBatchReader.from_batches(ARROW.schema, ARROW.to_batches()),
    ],
    ids=lambda given: f"{type(given).__module__}.{type(given).__name__}",
)
def test_frames_are_written_as_parquet(given: Any) -> None:
    folder = Folder()
    place = folder.write(Table("t", given))
    assert ds.dataset(place).to_table().to_pydict() == FRAME


def test_large_frames_keep_their_rows_in_several_files() -> None:
    table = pa.table({"n": pa.array(range(2_500_000))})
    folder = Folder()
    place = Path(folder.write(Table("t", table)))
    assert len(list(place.iterdir())) == 3
    back = ds.dataset(place).to_table()
    assert back.num_rows == table.num_rows
    assert pa.compute.sum(back["n"]) == pa.compute.sum(table["n"])


def test_empty_frames_keep_their_columns() -> None:
    folder = Folder()
    place = folder.write(Table("t", ARROW.slice(0, 0)))
    assert ds.dataset(place).schema.names == ["n", "s"]


def test_the_folder_is_deleted_with_its_query() -> None:
    folder = Folder()
    path = folder.path
    assert os.path.isdir(path)
    del folder
    gc.collect()
    assert not os.path.exists(path)


def test_a_frame_is_a_snapshot() -> None:
    frame = pd.DataFrame({"n": [1, 2]})
    table = Table("t", frame)
    frame.loc[0, "n"] = 99
    assert table.data.to_pydict() == {"n": [1, 2]}


def test_an_invalid_table_is_refused_by_name() -> None:
    with pytest.raises(sm.QueryError, match="table `t` is a dict"):
        sm.sql("select 1 from t", t={"a": [1]})


def test_unused_tables_are_refused() -> None:
    for text, table, hint in [
        ("select 1 from t", "memroy", "did you mean `memory`?"),
        ("select 'sales' from sale -- sales", "sales", "did you mean `sale`?"),
        ("select 1", "zzz", "use it after FROM or JOIN"),
    ]:
        with pytest.raises(sm.QueryError, match=f"does not use the table `{table}`") as refused:
            sm.sql(text, **{table: "2GiB"})
        assert (refused.value.code, refused.value.hint) == ("SM-0110", hint)
    sm.sql('select * from "T" a, b', t="a", b="b")


def test_functions_in_an_image_send_no_packages() -> None:
    @sm.udf(packages=["six"])
    def one(n: int) -> int:
        return n

    query = sm.sql("select one(n) from 't'", image="science:v1", workers=1)
    [source] = query._request()["udfs"]
    assert source["image"] == "science:v1"
    assert source["signatures"][0]["packages"] == []
    assert "functions in the image science:v1" in repr(query)
    with pytest.raises(sm.QueryError, match="not a DataFrame") as refused:
        sm.sql("select one(n) from image", image=pd.DataFrame())  # type: ignore[arg-type]
    assert refused.value.code == "SM-0110"
    with pytest.raises(sm.QueryError, match="the query has none"):
        sm.sql("select 1", image="science:v1")


def test_invalid_counts_are_refused_by_name() -> None:
    for bad in (-1, 0, 1.5, "4", True, 2**32):
        with pytest.raises(
            sm.QueryError, match=r"workers=.* is not a whole number from 1"
        ) as refused:
            sm.sql("select 1", workers=bad)  # type: ignore[arg-type]
        assert refused.value.code == "SM-0110"
    for wrong in (
        lambda: sm.map(abs, [1], workers=-1),
        lambda: sm.map(abs, [1], chunk=0),
        lambda: sm.burst(abs, -1),
        lambda: sm.burst(abs, []),
        lambda: sm.burst(abs, 1, hosts=0),
        lambda: sm.function(instances=-1)(abs),
        lambda: sm.function(prewarmed=-1)(abs),
    ):
        with pytest.raises(sm.QueryError) as refused:
            wrong()
        assert refused.value.code == "SM-0110"
    assert sm.function(prewarmed=0)(abs).options == {"prewarmed": 0}


def test_options_of_exchanges_are_sent() -> None:
    query = sm.sql(
        "select 1",
        exchange="objects",
        exchange_locations="s3://b/x/",
        exchange_levels=2,
        exchange_combining=False,
        exchange_task="1MiB",
    )
    assert query._request()["options"]["exchange"] == {
        "medium": "objects",
        "locations": ["s3://b/x/"],
        "levels": 2,
        "combining": False,
        "task_bytes": 1 << 20,
    }
    assert "exchange" not in sm.sql("select 1")._request()["options"]
    with pytest.raises(sm.QueryError, match="auto, files, hosts, streams, objects") as refused:
        sm.sql("select 1", exchange="pigeons")
    assert refused.value.code == "SM-0110"


def test_the_bytes_that_are_worth_a_task_are_those_of_the_call_or_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "scan_task" not in sm.sql("select 1")._request()["options"]
    assert sm.sql("select 1", scan_task="1MiB")._request()["options"]["scan_task"] == 1 << 20
    monkeypatch.setenv("SNOWMELT_SCAN_TASK", "2MiB")
    assert sm.sql("select 1")._request()["options"]["scan_task"] == 2 << 20
    assert sm.sql("select 1", scan_task=0)._request()["options"]["scan_task"] == 0
    with pytest.raises(sm.QueryError) as refused:
        sm.sql("select 1", scan_task="few")
    assert refused.value.code == "SM-0110"


def test_showing_a_query_runs_nothing(tmp_path: Path) -> None:
    program = (
        "import snowmelt as sm, pyarrow as pa\n"
        "q = sm.sql('select  *\\nfrom t, u', t=pa.table({'n': [1]}), u='s3://b/*.parquet', workers=3)\n"
        "print(q)\n"
        "q._repr_html_()\n"
    )
    printed = run_program(program, SNOWMELT_BIN="/nonexistent", TMPDIR=str(tmp_path))
    assert printed == (
        "<snowmelt query: select * from t, u\n"
        "  table t: (n int64)\n"
        "  table u: s3://b/*.parquet\n"
        "  workers=3\n"
        "  not run yet>\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_missing_binary_is_an_error() -> None:
    program = "import snowmelt as sm\ntry: sm.sql('select 1').collect()\nexcept sm.PlatformError as e: print(e)"
    variables = {"SNOWMELT_BIN": "/nonexistent", "SNOWMELT_STATE": "/nonexistent"}
    printed = run_program(program, SNOWMELT_SOCKET="", **variables)
    assert printed.startswith("error[SM-0503]: SNOWMELT_BIN is /nonexistent")


def test_an_unreachable_named_server_is_an_error() -> None:
    program = "import snowmelt as sm\ntry: sm.map(abs, [1])\nexcept sm.PlatformError as e: print(e)"
    printed = run_program(program, SNOWMELT_SOCKET="/nonexistent/s")
    assert "the server at /nonexistent/s cannot be reached" in printed


STOPPED = """
import os, signal, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(int(sys.argv[2]))
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""

CONTACT = """
import time, snowmelt as sm
begun = time.monotonic()
try: sm.map(abs, [1])
except sm.PlatformError as e: print(e.code, e.hint)
print(time.monotonic() - begun)
"""


@pytest.mark.parametrize("backlog", [128, 0])
def test_a_server_whose_process_is_stopped_is_an_error_and_no_hang(
    tmp_path: Path, backlog: int
) -> None:
    path = str(tmp_path / "socket")
    command = [sys.executable, "-c", STOPPED, path, str(backlog)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            server.stdout.readline()
            if backlog == 0:
                full = socket.socket(socket.AF_UNIX)
                full.connect(path)
            said, seconds = run_program(CONTACT, SNOWMELT_SOCKET=path).splitlines()
        finally:
            server.kill()
    assert said.startswith("SM-0511") and "kill -CONT" in said
    assert float(seconds) < 15


def _serve(listener: socket.socket, answers: int) -> None:
    """Takes a request that it never answers, and answers so many small ones after it."""
    held, _ = listener.accept()
    for _ in range(answers):
        with listener.accept()[0] as asked:
            asked.recv(4096)
            asked.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    if answers:
        held.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ntrue")
    else:
        while held.recv(1 << 20):
            pass
    held.close()


@pytest.mark.parametrize("answers", [0, 3])
def test_a_server_that_takes_long_is_asked_whether_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    monkeypatch.setattr(_server, "ANSWERS_WITHIN_SECONDS", 0.5)
    monkeypatch.setattr(_client, "_ASKED_EVERY_SECONDS", 0.1)
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=_serve, args=(listener, answers))
        thread.start()
        client = _client.Client(_server.Server(path, None, None))
        if answers:
            assert client.call("POST", "/v1/slow", {}) is True
        else:
            with pytest.raises(sm.PlatformError) as silent:
                client.call("POST", "/v1/slow", {})
            assert silent.value.code == "SM-0511"
        thread.join()


def test_progress_shows_phases_and_counts() -> None:
    event = {
        "event": "progress",
        **{"tasks": 8, "running": 2, "done": 5, "cold": 3, "warm": 5},
        **{"rows": 12345, "bytes": 3 << 20, "bytes_total": 1 << 31, "udf_rows": 7},
    }
    assert _progress.query_text(event) == (
        "2 running · 5 of 8 done (3 cold, 5 warm) · 12,345 rows, 3.0 MiB of 2.0 GiB read · "
        "7 rows to functions"
    )
    assert _progress.enabled(False) is False


def test_a_progress_line_is_cut_at_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = _progress.Line(True)
    line._redraws, line._next = True, 0.0
    monkeypatch.setattr(_progress, "_columns", lambda: 20)
    line.show("x" * 30)
    assert capsys.readouterr().err == "\r" + "x" * 18 + "…"
    # What a notebook shows has no width.
    monkeypatch.setattr(_progress, "_columns", lambda: None)
    line._next = 0.0
    line.show("y" * 30)
    assert capsys.readouterr().err == "\r" + "y" * 30


def test_progress_of_a_burst_shows_the_room_that_it_waits_for() -> None:
    room = {"needed": 1200 << 20, "free": 424 << 20, "hosts": 3}
    burst = {"state": "waiting", "functions": 1200, "ended": 0, "waits_for": room}
    assert _progress.burst_text(burst) == (
        "burst of 1,200 functions waits for room: 1.2 GiB needed, 424.0 MiB free on 3 hosts"
    )
    burst |= {"state": "starting", "waits_for": None}
    assert _progress.burst_text(burst) == "burst of 1,200 functions starts"
    burst |= {"state": "running", "functions": 1}
    assert _progress.burst_text(burst) == "0 of 1 function ended"


AWAY = """
import traceback, snowmelt as sm
def own():
    {call}
try:
    own()
except sm.PlatformError as error:
    traceback.print_exc(file=sys.stdout)
    print("in a notebook", *error._render_traceback_(), sep="\\n")
"""


@pytest.mark.parametrize(
    "call",
    [
        "sm.sql('select 1').pandas()",
        "next(sm.sql('select 1').batches())",
        "sm.map(abs, [1])",
        "sm.function(abs).remote(1)",
        "sm.burst(abs, 1)",
        "sm.deployed('name')",
    ],
)
def test_tracebacks_show_only_the_callers_lines(call: str) -> None:
    program = "import sys\n" + AWAY.replace("{call}", call).replace("\\\\n", "\\n")
    printed = run_program(program, SNOWMELT_SOCKET="/nonexistent/s")
    plain, _, notebook = printed.partition("in a notebook\n")
    assert plain.count("Traceback") == 1
    ours = [line for line in plain.splitlines() if "/snowmelt/" in line and "File" in line]
    assert len(ours) <= 1, plain
    assert "in own" in notebook and "/snowmelt/" not in notebook
    assert notebook.count("error[SM-0503]") == 1 and len(notebook.splitlines()) < 8, notebook
