"""Functions and map items in a real instance: answers, failures, output, loading, connections."""

from __future__ import annotations

import base64
import json
import socket
import struct
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from peer import PATIENCE_SECONDS, Caller, Instance, Refused, call, run_program

from snowmelt._runtime import frames, function


def _failure(instance: Instance, text: str, event: Any = None, **more: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as refused:
        instance.call(instance.source(text), event, **more)
    return refused.value.failure


def test_json_goes_in_and_out(instance: Instance) -> None:
    code = instance.source("def handler(event): return {'got': event}")
    for event in (None, True, 0, -(2**70), 1.5, "漢\0", [], {"a": [{"b": None}]}):
        assert instance.call(code, event) == {"got": event}


def test_plain_functions_load_no_pyarrow(own_instance: Instance) -> None:
    code = own_instance.source("import sys\ndef handler(_): return sorted(sys.modules)")
    modules = set(own_instance.call(code, None))
    assert "snowmelt._runtime.function" in modules
    assert not {"pyarrow", "numpy", "pandas", "cloudpickle"} & modules


@pytest.mark.parametrize("value", ["{1}", "object()", "float('nan')", "b''", "{(1,): 2}"])
def test_answers_that_are_not_json_are_refused(instance: Instance, value: str) -> None:
    failure = _failure(instance, f"def handler(_): return {value}")
    assert (failure["kind"], failure["function"]) == ("type", "handler")
    assert "is not JSON" in failure["exception"]
    assert failure["hint"].startswith("return None, bool")


_ASYNC = """
import asyncio

kept = []

async def handler(event):
    kept.append(asyncio.get_running_loop())
    left = asyncio.ensure_future(later())
    await asyncio.sleep(0)
    return {"got": event, "loops": len(set(kept)), "calls": len(kept), "ended": list(ended)}

ended = []

async def later():
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise

async def items(n):
    for i in range(n):
        yield i

def plain(n):
    yield from range(n)

async def fails(_):
    raise ValueError("in vain")

def fails_late(_):
    yield 1
    raise ValueError("in vain")
"""


def test_an_async_handler_is_awaited_in_one_loop(instance: Instance) -> None:
    code = instance.source(_ASYNC)
    connection = instance.open("function", code, "handler")
    first = call(connection, 1)
    second = call(connection, 2)
    assert first == {"got": 1, "loops": 1, "calls": 1, "ended": []}
    assert second == {"got": 2, "loops": 1, "calls": 2, "ended": ["cancelled"]}


def test_generators_answer_with_a_list(instance: Instance) -> None:
    code = instance.source(_ASYNC)
    for handler in ("items", "plain"):
        assert instance.call(code, 3, function=handler) == [0, 1, 2]


@pytest.mark.parametrize("handler", ["fails", "fails_late"])
def test_what_is_raised_while_awaited_is_the_failure(instance: Instance, handler: str) -> None:
    failure = _failure(instance, _ASYNC, function=handler)
    assert failure["kind"] == "raised"
    assert failure["exception"] == "ValueError: in vain"
    assert failure["location"]["within"] == f"{handler}()"


_FOLDER = {
    "app": """
        from jobs import nightly

        def handler(event):
            return nightly.twice(event)
        """,
    "jobs_nightly": """
        from pathlib import Path

        from .limits import MOST

        def twice(number):
            if number > MOST:
                raise ValueError("too many")
            return [2 * number, Path(__file__).name]
        """,
    "jobs_limits": "MOST = 10",
    # The runtime has imported a module of this name, which it must keep.
    "json": "def dumps(_): return 'mine'",
}


@pytest.mark.parametrize(
    ("main", "handler", "expected"),
    [
        ("app.py", "handler", [8, "nightly.py"]),
        ("jobs/nightly.py", "twice", [8, "nightly.py"]),
        ("json.py", "dumps", "mine"),
    ],
)
def test_the_files_of_a_folder_import_each_other(
    own_instance: Instance, main: str, handler: str, expected: Any
) -> None:
    code = own_instance.in_folder(main, **_FOLDER)
    assert own_instance.call(code, 4, function=handler) == expected


def test_a_failure_in_a_folder_names_the_file_in_it(own_instance: Instance) -> None:
    code = own_instance.in_folder("app.py", **_FOLDER)
    with pytest.raises(Refused) as refused:
        own_instance.call(code, 11)
    failure = refused.value.failure
    assert failure["location"] == {"file": "jobs/nightly.py", "line": 8, "within": "twice()"}
    assert failure["traceback"][:2] == [
        "app.py:5 in handler()",
        "    return nightly.twice(event)",
    ]


def test_a_folder_that_cannot_be_loaded_names_the_file_in_it(own_instance: Instance) -> None:
    broken = own_instance.in_folder("app.py", app="from other import x", other="def f(:")
    with pytest.raises(Refused) as refused:
        own_instance.call(broken, None)
    assert refused.value.failure["location"]["file"] == "other.py"


def test_a_raise_names_line_event_and_cause(instance: Instance) -> None:
    text = """
    def handler(event):
        try:
            event["missing"]
        except KeyError as error:
            raise ValueError("no luck") from error
    """
    failure = _failure(instance, text, {"a": "x" * 1000})
    assert failure["kind"] == "raised"
    assert failure["location"] == {"file": "udfs.py", "line": 6, "within": "handler()"}
    assert failure["traceback"][1:] == ["ValueError: no luck", "caused by KeyError: 'missing'"]
    assert failure["input"].startswith("event = {'a': 'xxx")
    assert len(failure["input"]) <= 210


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("__import__('no_such_thing.inside')", 'packages=["no_such_thing"]'),
        ("__import__('sklearn.svm')", "--package scikit-learn"),
        ("_raise(__import__('socket').gaierror(-3, 'name'))", "no network"),
        ("_raise(__import__('urllib.error').error.URLError(OSError(101, 'x')))", "no network"),
        ("_wrapped(OSError(101, 'Network is unreachable'))", "no network"),
        ("open('/no/such/file')", "--file"),
        ("_raise(PermissionError(13, 'Permission denied'))", "only /tmp"),
        ("os.strerror(_raise(OSError(97, 'Address family not supported')))", "no network"),
        ("_raise(OSError(28, 'No space left on device'))", "scratch"),
        ("_raise(OSError(30, 'Read-only file system'))", "only /tmp"),
        ("_raise(BlockingIOError(11, 'Resource temporarily unavailable'))", "limit of processes"),
        ('_raise(RuntimeError("can\'t start new thread"))', "limit of processes"),
        ("_raise(MemoryError())", "memory="),
        ("_raise(MemoryError())", "--memory"),
    ],
)
def test_errors_of_sandbox_limits_have_a_hint(
    instance: Instance, expression: str, hint: str
) -> None:
    text = (
        "import os\ndef _raise(error): raise error\n"
        "def _wrapped(error):\n"
        "    try: raise error\n"
        "    except OSError as found: raise ValueError('no answer') from found\n"
        f"def handler(_): return {expression}"
    )
    assert hint in _failure(instance, text)["hint"]


def test_output_is_written_before_the_answer(own_instance: Instance) -> None:
    code = own_instance.source(
        """
        import sys
        def handler(event):
            print("out", event, end="")
            print("err \\ud800", event, file=sys.stderr, end="")
        """
    )
    connection = own_instance.open("function", code, "handler")
    for number in (1, 2):
        call(connection, number)
        log = own_instance.log.read_text()
        assert f"out {number}" in log and f"err \\ud800 {number}" in log


def test_a_handler_may_close_standard_output(own_instance: Instance) -> None:
    text = "import sys\ndef handler(event):\n    sys.stdout.close()\n    sys.stderr = None\n"
    code = own_instance.source(text + "    return event")
    assert [own_instance.call(code, number) for number in (1, 2)] == [1, 2]


@pytest.mark.parametrize(
    ("statement", "code"), [("sys.exit(7)", 7), ("sys.exit('bye')", 1), ("os._exit(9)", 9)]
)
def test_exit_ends_the_process(own_instance: Instance, statement: str, code: int) -> None:
    text = f"import os, sys\ndef handler(_):\n    print('last words')\n    sys.stdout.flush()\n    {statement}"
    connection = own_instance.open("function", own_instance.source(text), "handler")
    connection.send_json(frames.CALL, {"invocation": "i-1", "event": None})
    assert connection.receive() is None
    assert own_instance.process.wait(PATIENCE_SECONDS) == code
    assert "last words" in own_instance.log.read_text()


def test_a_load_failure_has_a_reason(instance: Instance) -> None:
    broken = _failure(instance, "import snowmelt\n\ndef handler(:\n    pass")
    assert broken["kind"] == "load"
    assert broken["exception"].startswith("SyntaxError: ")
    assert broken["location"]["file"] == "udfs.py" and broken["location"]["line"] == 3

    raising = _failure(instance, "MODEL = 1 / 0\ndef handler(_): return 1")
    assert raising["location"] == {"file": "udfs.py", "line": 1, "within": "<module>"}
    assert raising["traceback"] == ["MODEL = 1 / 0", "ZeroDivisionError: division by zero"]

    missing = _failure(instance, "def handle(_): pass\ndef helper(): pass")
    assert missing["exception"] == "there is no `handler` in udfs.py: it defines handle, helper"
    assert "is not a function" in _failure(instance, "handler = 3")["exception"]


def test_a_pickle_of_another_python_is_refused(instance: Instance) -> None:
    code = instance.pickled(len, python="2.7", data="")
    with pytest.raises(Refused) as refused:
        instance.call(code, None)
    failure = refused.value.failure
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert failure["kind"] == "load"
    assert failure["exception"].endswith(f"by Python 2.7 and runs here on Python {here}")


def test_code_is_loaded_once_for_all_connections(instance: Instance) -> None:
    code = instance.source(
        "calls = []\ndef handler(_):\n    calls.append(1)\n    return len(calls)"
    )
    assert [instance.call(code, None) for _ in range(3)] == [1, 2, 3]


def test_a_file_may_have_the_name_of_a_library(instance: Instance) -> None:
    text = "import json\ndef handler(_): return json.loads('[1]')"
    assert instance.call(instance.source(text, file="json.py"), None) == [1]


def test_map_keeps_order_and_returns_failures_in_order(instance: Instance) -> None:
    code = instance.source("def f(n):\n    return {1 / n}\n")
    outcomes = instance.map(code, [1, 0, 2])
    assert [good for good, _ in outcomes] == [True, False, True]
    assert (outcomes[0][1], outcomes[2][1]) == ({1.0}, {0.5})
    failed = outcomes[1][1].__cause__.report
    assert failed["message"] == "`f` raised ZeroDivisionError: division by zero"
    assert failed["input"] == "item = 0"
    assert failed["location"]["line"] == 2


@pytest.mark.parametrize(
    ("results", "reason"), [("plain", "is not plain data"), ("pickle", "cannot be pickled")]
)
def test_a_map_result_that_cannot_be_sent_fails_only_its_item(
    instance: Instance, results: str, reason: str
) -> None:
    code = instance.source("import threading\ndef f(n): return threading.Lock() if n else n\n")
    (good, value), (bad, failed) = instance.map(code, [0, 1], results=results)
    assert (good, value, bad) == (True, 0, False)
    assert failed.code == "SM-0202" and reason in failed.message


def test_describe_lists_the_udfs_of_the_code(instance: Instance) -> None:
    code = instance.source(
        """
        import snowmelt as sm
        @sm.udf(packages=["six"], on_error="null", deterministic=True, memory="1GiB", timeout=5)
        def g(price: float, note: str | None) -> int: return 1
        same = g
        @sm.udf
        def h(v: sm.Array[list[int]]) -> sm.Array[int]: return v
        def plain(v): return v
        """
    )
    connection = instance.open("describe", code)
    frame = connection.receive()
    assert frame is not None and frame[0] == frames.RETURN
    g, h = json.loads(frame[1])
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(g.pop("schema"))))
    fields = [
        ("price", pa.float64(), False),
        ("note", pa.string(), True),
        ("return", pa.int64(), True),
    ]
    assert [(f.name, f.type, f.nullable) for f in schema] == fields
    assert g == {
        "name": "g",
        "kind": "scalar",
        "batch": "scalar",
        "on_error": "null",
        "deterministic": True,
        "packages": ["six"],
        "memory": "1GiB",
        "timeout": "5",
    }
    assert (h["name"], h["batch"]) == ("h", "arrow")


def test_bad_annotations_give_a_signature_failure(instance: Instance) -> None:
    code = instance.source("import snowmelt as sm\n@sm.udf\ndef f(x, y: int) -> int: return 1")
    with pytest.raises(Refused) as refused:
        instance.open("describe", code)
    failure = refused.value.failure
    assert (failure["kind"], failure["function"]) == ("signature", "f")
    assert failure["exception"] == "parameter `x` has no annotation: write for example x: float"
    assert failure["location"] == {"file": "udfs.py", "line": 2, "within": "f()"}


def test_connections_run_concurrently(instance: Instance) -> None:
    code = instance.source(
        """
        import threading, snowmelt as sm
        meeting = threading.Barrier(4, timeout=60)
        @sm.udf
        def f(v: int) -> int:
            meeting.wait()
            return v * 10
        """
    )
    schema = pa.schema([("v", pa.int64())])
    results: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        caller = Caller(instance.open("udf", code, "f"), schema)
        results[number] = caller(pa.record_batch({"v": [number]}, schema=schema)).to_pylist()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [number * 10] for number in range(4)}


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff\x01\0\0\0",
        struct.pack("<IB3x", 2, frames.LOAD) + b"{}",
        struct.pack("<IB3x", 4, frames.LOAD) + b"\xff\xfe\0\0",
        struct.pack("<IB3x", 0, frames.BATCH),
        b"\x05\0",
    ],
    ids=["too long", "not a load", "not json", "not expected", "cut short"],
)
def test_a_protocol_violation_ends_only_its_connection(instance: Instance, sent: bytes) -> None:
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(PATIENCE_SECONDS)
    connected.connect(instance._path)
    connected.sendall(sent)
    connected.shutdown(socket.SHUT_WR)
    assert connected.recv(1) == b""
    assert instance.call(instance.source("def handler(event): return event"), 1) == 1


def test_a_malformed_batch_ends_only_its_connection(instance: Instance) -> None:
    code = instance.source("import snowmelt as sm\n@sm.udf\ndef f(v: int) -> int: return v")
    schema = pa.schema([("v", pa.int64())])
    good = pa.record_batch({"v": [1]}, schema=schema)
    payload = bytearray(good.serialize())
    for position in (8, len(payload) // 2):
        broken = payload.copy()
        broken[position : position + 8] = b"\xff" * 8
        connection = instance.open("udf", code, "f")
        Caller(connection, schema)
        connection.send(frames.BATCH, broken)
        connection.receive()
    assert instance.udf(code, "f", good).to_pylist() == [1]


@pytest.mark.parametrize("libraries", [True, False], ids=["with libraries", "bare"])
def test_a_process_can_be_forked_after_preloading(libraries: bool) -> None:
    program = """
import os, sys
if not {libraries}:
    sys.path[:] = [path for path in sys.path if "site-packages" not in path]
import snowmelt._runtime.serve
if {libraries}:
    import numpy, pandas, pyarrow
import snowmelt._runtime.preload
print(len(os.listdir("/proc/self/task")), "pyarrow" in sys.modules)
"""
    printed = run_program(program.format(libraries=libraries), OPENBLAS_NUM_THREADS="1")
    assert printed == f"1 {libraries}\n"


def test_an_answer_larger_than_a_frame_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_ANSWER_BYTES", 1000)
    near, far = socket.socketpair()
    near.settimeout(PATIENCE_SECONDS)
    served = threading.Thread(
        target=function.serve,
        args=(frames.Connection(far), lambda event: "x" * event, "f", function.event_answer),
    )
    served.start()
    connection = frames.Connection(near)
    with pytest.raises(Refused) as refused:
        call(connection, 2000)
    assert refused.value.failure["kind"] == "type"
    assert (
        "its answer has 2,002 bytes, and 1,000 are the most" in refused.value.failure["exception"]
    )
    assert call(connection, 3) == "xxx"
    near.close()
    served.join()
