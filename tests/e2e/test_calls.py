"""Calls of functions over the lifetime of a server: HTTP statuses, shutdown, a lost spawner, memory
of the server, logs and handlers."""

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, descendants, wait_for

SLEEPS = """import time

def handler(event):
    time.sleep(event["seconds"])
    return {"slept": event["seconds"]}
"""
FAILS = """def handler(event):
    raise ValueError("as asked")
"""


@pytest.fixture
def up(alone: Snowmelt) -> Iterator[Snowmelt]:
    alone.run("up").succeeded()
    yield alone
    if (alone.folder / "state/snowmelt.sock").exists():
        alone.run("down", "--grace", "0s")


def deploy(snowmelt: Snowmelt, tmp_path: Path, code: str, *arguments: object) -> None:
    file = tmp_path / "function.py"
    file.write_text(code)
    snowmelt.run("fn", "deploy", "f", file, *arguments).succeeded()


def status(snowmelt: Snowmelt) -> dict[str, Any]:
    return dict(json.loads(snowmelt.run("status", "-o", "json").succeeded().out))


def busy(snowmelt: Snowmelt) -> int:
    return int(status(snowmelt)["instances"][0])


def submit(snowmelt: Snowmelt, event: object) -> str:
    return (
        snowmelt.run("fn", "call", "f", "--async", "--data", json.dumps(event))
        .succeeded()
        .out.strip()
    )


def result(snowmelt: Snowmelt, identity: str) -> Any:
    return json.loads(snowmelt.run("fn", "result", identity, "--wait").succeeded().out)


class Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(path))


def ask(
    snowmelt: Snowmelt, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, Any], str]:
    connection = Unix(snowmelt.folder / "state/snowmelt.sock")
    payload = None if body is None else json.dumps(body)
    connection.request(method, path, payload, headers)
    response = connection.getresponse()
    said = json.loads(response.read() or b"null")
    return response.status, said, response.headers["content-type"] or ""


def test_down_waits_for_running_calls(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, SLEEPS)
    calling = up.start("fn", "call", "f", "--data", '{"seconds": 2}')
    wait_for("the call", lambda: busy(up) == 1)
    up.run("down", "--grace", "60s").succeeded()
    assert json.loads(up.finish(calling).succeeded().out) == {"slept": 2}


def test_down_cancels_calls_after_the_grace_time(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, SLEEPS, "--timeout", "15m")
    calling = up.start("fn", "call", "f", "--data", '{"seconds": 600}')
    wait_for("the call", lambda: busy(up) == 1)
    up.run("down", "--grace", "0s").succeeded()
    assert up.finish(calling).code == 3


def test_accepted_calls_run_again_after_down(up: Snowmelt, tmp_path: Path) -> None:
    """One runs, the others wait. A former version lost them at `down`."""
    deploy(up, tmp_path, SLEEPS, "--instances", "1")
    called = [submit(up, {"seconds": seconds}) for seconds in (3, 0, 0.5)]
    wait_for("the first", lambda: busy(up) == 1)
    up.run("down", "--grace", "0s").succeeded()
    up.run("up").succeeded()
    assert [result(up, identity)["slept"] for identity in called] == [3, 0, 0.5]


def test_calls_of_a_removed_function_end(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, SLEEPS, "--instances", "1")
    first, second = (submit(up, {"seconds": seconds}) for seconds in (3, 600))
    wait_for("the first", lambda: busy(up) == 1)
    up.run("fn", "rm", "f").succeeded()
    assert result(up, first) == {"slept": 3}
    up.run("fn", "result", second, "--wait").failed_with("SM-0220", "f")


def test_accepted_calls_survive_the_loss_of_the_spawner(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, SLEEPS, "--instances", "2")
    running = submit(up, {"seconds": 4})
    wait_for("the call", lambda: busy(up) == 1)
    server = status(up)["pid"]
    for child, line in descendants(server).items():
        if "internal spawner" in line:
            os.kill(child, signal.SIGKILL)
    later = submit(up, {"seconds": 0})
    for identity in (running, later):
        failed = up.run("fn", "result", identity)
        assert failed.code in (0, 3), failed.err
    up.run("down", "--grace", "0s")
    up.run("up").succeeded()
    assert [result(up, identity)["slept"] for identity in (running, later)] == [4, 0]


def test_a_failed_call_has_an_http_error_status(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, FAILS)
    path = "/v1/functions/f/invocations"
    code, said, kind = ask(up, "POST", path, {"event": {}})
    assert (code, said["code"], kind) == (502, "SM-0201", "application/problem+json")
    assert said["invocation"]["state"] == "failed"
    deploy(up, tmp_path, SLEEPS, "--timeout", "1s")
    assert ask(up, "POST", path, {"event": {"seconds": 60}})[0] == 504
    assert ask(up, "POST", path, {"event": {"seconds": 0}})[:2][0] == 200
    assert up.run("fn", "call", "f", "--data", "{}").code == 1


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", (404, "SM-0508")),
        ("GET", "/v1/nothing?x=1", (404, "SM-0508")),
        ("PUT", "/v1/functions", (405, "SM-0508")),
        ("GET", "/v1/functions/none", (404, "SM-0220")),
        ("GET", "/v1/invocations/i-1", (404, "SM-0223")),
        ("GET", "/v1/functions/f/logs?tail=x", (400, "SM-0110")),
    ],
)
def test_missing_resources_give_a_problem_document(
    up: Snowmelt, method: str, path: str, expected: tuple[int, str]
) -> None:
    code, said, kind = ask(up, method, path)
    assert (code, said["code"]) == expected
    assert kind == "application/problem+json"
    assert ".rs" not in str(said) and "crates/" not in str(said)


def test_a_request_that_is_too_long_has_a_code(up: Snowmelt) -> None:
    length = {"Content-Length": str(300 << 20)}
    code, said, _ = ask(up, "POST", "/v1/functions/f/invocations", None, **length)
    assert (code, said["code"]) == (413, "SM-0509")


def peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def test_an_answer_costs_the_server_a_few_times_its_length(up: Snowmelt, tmp_path: Path) -> None:
    """As a tree of values, 16 MiB of empty lists took 1.6 GiB."""
    deploy(up, tmp_path, "def handler(event): return [[]] * (4 << 20)\n", "--memory", "1GiB")
    server = status(up)["pid"]
    before = peak_bytes(server)
    done = up.run("fn", "call", "f").succeeded()
    assert len(json.loads(done.out)) == 4 << 20
    assert peak_bytes(server) - before < 200 << 20


def test_an_answer_that_is_too_long_is_the_failure_of_its_call(
    up: Snowmelt, tmp_path: Path
) -> None:
    deploy(up, tmp_path, "def handler(n): return 'x' * n\n", "--memory", "1GiB")
    up.run("fn", "call", "f", "--data", str(65 << 20)).failed_with("SM-0202", "67,108,864")
    assert json.loads(up.run("fn", "call", "f", "--data", "3").succeeded().out) == "xxx"


def test_a_stopped_server_and_a_missing_server_give_different_errors(up: Snowmelt) -> None:
    server = status(up)["pid"]
    os.kill(server, signal.SIGSTOP)
    try:
        assert up.run("status", timeout=60).failed_with("SM-0511", "CONT")
        assert up.run("fn", "ls", timeout=60).code == 3
    finally:
        os.kill(server, signal.SIGCONT)
    assert status(up)["pid"] == server


def test_logs_report_that_a_function_wrote_nothing(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, "def handler(event): return 1\n")
    up.run("fn", "call", "f").succeeded()
    assert "f has written nothing" in up.run("fn", "logs", "f").succeeded().err


def test_concurrent_calls_that_print_keep_all_logs_without_warnings(
    up: Snowmelt, tmp_path: Path
) -> None:
    code = "import time\ndef handler(event):\n    print('said', event)\n    return event\n"
    deploy(up, tmp_path, code, "--instances", "8")
    events = {"events": list(range(300))}
    assert ask(up, "POST", "/v1/functions/f/batches", events)[0] == 200
    logs = up.run("fn", "logs", "f", "--tail", "300").succeeded().out
    assert sum(line.startswith("said ") for line in logs.splitlines()) == 300
    log = (up.folder / "state/snowmelt.log").read_text()
    assert "cannot keep" not in log, log


@pytest.mark.parametrize("signature", ["()", "(event, context)"])
def test_a_handler_that_takes_no_event_is_refused_at_its_deployment(
    up: Snowmelt, tmp_path: Path, signature: str
) -> None:
    file = tmp_path / "f.py"
    file.write_text(f"def handler{signature}: return 1\n")
    up.run("fn", "deploy", "f", file).failed_with("SM-0204", "handler", "event")


@pytest.mark.parametrize("place", ["--embedded", "server"])
def test_run_calls_once_and_cleans_up(alone: Snowmelt, tmp_path: Path, place: str) -> None:
    file = tmp_path / "hello.py"
    file.write_text(
        "def handler(event):\n    print('printed')\n    return {'hello': event['name']}\n"
    )
    arguments = ["--embedded"] if place == "--embedded" else []
    if not arguments:
        alone.run("up").succeeded()
    try:
        event = ("--data", '{"name": "Ada"}')
        done = alone.run("run", file, *event, *arguments).succeeded()
        assert json.loads(done.out) == {"hello": "Ada"}
        assert "printed" in done.err
        alone.run("run", f"{file}:other", *arguments).failed_with("SM-0204", "other")
        assert json.loads(alone.run("fn", "ls", "-o", "json", *arguments).succeeded().out) == []
    finally:
        if not arguments:
            alone.run("down")
