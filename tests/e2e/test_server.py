"""`up`, `down`, `status`, and deployed functions, which persist when the server is killed."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN_WITHIN_S, Snowmelt, wait_for

from common.machine_state import MachineState

HELLO = """import os

def handler(event):
    print("called with", event)
    return {"hello": event.get("name", "world"), "mode": os.environ.get("MODE")}
"""
FAULTS = """import os, time

def handler(event):
    what = event["what"]
    if what == "raise":
        raise RuntimeError("as asked")
    if what == "exit":
        os._exit(3)
    if what == "sleep":
        time.sleep(600)
    if what == "memory":
        hold = [bytearray(8 << 20) for _ in range(10_000)]
    if what == "object":
        return object()
    return what
"""


@pytest.fixture
def up(alone: Snowmelt) -> Iterator[Snowmelt]:
    alone.run("up").succeeded()
    yield alone
    if (alone.folder / "state/snowmelt.sock").exists():
        alone.run("down")


def status(snowmelt: Snowmelt) -> dict[str, Any]:
    return dict(json.loads(snowmelt.run("status", "-o", "json").succeeded().out))


def deploy(snowmelt: Snowmelt, tmp_path: Path, code: str, *arguments: object) -> None:
    file = tmp_path / "function.py"
    file.write_text(code)
    snowmelt.run("fn", "deploy", "hello", file, *arguments).succeeded()


def call(snowmelt: Snowmelt, event: object) -> Any:
    done = snowmelt.run("fn", "call", "hello", "--data", json.dumps(event)).succeeded()
    return json.loads(done.out)


def test_up_status_down(alone: Snowmelt, data: Path) -> None:
    before = MachineState()
    assert alone.run("status").code == 3
    alone.run("up").succeeded()
    pid = status(alone)["pid"]
    assert Path(f"/proc/{pid}").exists()
    rows = alone.rows(f"select max(length(c_name)) as n from '{data / 'customer'}'")
    workers = status(alone)["workers"]
    alone.run("down").succeeded()
    assert rows == [{"n": 18}]
    assert workers[1] > 0, "the worker waits idle for the next query"
    assert alone.run("status").code == 3
    assert not before.remaining_within(CLEAN_WITHIN_S)


def test_a_damaged_state_is_refused_and_restored(alone: Snowmelt, tmp_path: Path) -> None:
    alone.run("up").succeeded()
    deploy(alone, tmp_path, HELLO)
    copy = alone.run("backup").succeeded().out.strip()
    alone.run("down").succeeded()
    state = alone.folder / "state/state.redb"
    damaged = state.read_bytes()[:9000]
    state.write_bytes(damaged)
    try:
        alone.run("up", timeout=60).failed_with("SM-0505", "backup --restore", copy)
        assert state.read_bytes() == damaged
        alone.run("backup", "--restore").succeeded()
        kept = list(state.parent.glob("state.redb.replaced-*"))
        assert [file.read_bytes() for file in kept] == [damaged]
        alone.run("up", timeout=60).succeeded()
        listed = json.loads(alone.run("fn", "ls", "-o", "json").succeeded().out)
        assert [function["name"] for function in listed] == ["hello"]
        alone.run("backup", "--restore").failed_with("SM-0504")
    finally:
        alone.run("down")


def test_a_second_server_is_refused(up: Snowmelt) -> None:
    done = up.run("up")
    done.failed_with("SM-0504")
    assert done.code == 2


def test_two_concurrent_clients(up: Snowmelt, data: Path) -> None:
    sql = f"select sum(l_orderkey) as s from '{data / 'lineitem'}' where l_linenumber = "
    alone = [up.rows(f"{sql}{n}", "--embedded") for n in (1, 2)]
    started = [up.start("sql", f"{sql}{n}", "-o", "json") for n in (1, 2)]
    together = [json.loads(up.finish(process).succeeded().out) for process in started]
    assert [[row] for row in together] == alone


def test_a_client_that_is_killed_cancels_its_query(
    up: Snowmelt, data: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\nimport snowmelt as sm\n\n@sm.udf\ndef slow(x: int) -> int:\n"
        "    time.sleep(600)\n    return x\n"
    )
    client = up.start("sql", f"select slow(c_custkey) from '{data / 'customer'}'", "--udf", slow)
    wait_for("the query", lambda: status(up)["queries"] == 1)
    client.kill()
    client.communicate()
    wait_for("its end", lambda: status(up)["queries"] == 0)
    wait_for("its sandboxes' end", lambda: status(up)["instances"][0] == 0)


def test_a_function_from_deploy_to_rm(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, HELLO, "--env", "MODE=e2e")
    assert call(up, {"name": "Ada"}) == {"hello": "Ada", "mode": "e2e"}
    listed = json.loads(up.run("fn", "ls", "-o", "json").succeeded().out)
    assert [function["name"] for function in listed] == ["hello"]
    assert "called with {'name': 'Ada'}" in up.run("fn", "logs", "hello").succeeded().out
    up.run("fn", "rm", "hello").succeeded()
    up.run("fn", "call", "hello").failed_with("SM-0220", "hello")


def test_an_asynchronous_call(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, HELLO)
    identity = up.run("fn", "call", "hello", "--async").succeeded().out.strip()
    done = up.run("fn", "result", identity, "--wait").succeeded()
    assert json.loads(done.out)["hello"] == "world"


def test_it_scales_to_zero(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, HELLO, "--idle", "1s")
    call(up, {})
    wait_for("no instance", lambda: status(up)["instances"] == [0, 0])
    assert call(up, {})["hello"] == "world"


def metrics(snowmelt: Snowmelt) -> list[str]:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(str(snowmelt.folder / "state/snowmelt.sock"))
        server.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return b"".join(iter(lambda: server.recv(1 << 16), b"")).decode().splitlines()


def test_metrics_name_functions_and_how_calls_and_queries_ended(
    up: Snowmelt, tmp_path: Path
) -> None:
    deploy(up, tmp_path, FAULTS)
    call(up, {"what": "well"})
    up.run("fn", "call", "hello", "--data", '{"what": "raise"}').failed_with("SM-0201")
    up.run("fn", "burst", "hello", "-n", "2", "--data", '{"what": "well"}').succeeded()
    up.run("fn", "burst", "hello", "-n", "1", "--data", '{"what": "raise"}')
    assert up.rows("select 1 as n") == [{"n": 1}]
    up.run("sql", "select nothing").failed_with("SM-0102")
    hello = 'tenant="default",function="hello"'
    counts = {
        f'call_seconds_count{{{hello},by="call",outcome="succeeded"}} 1',
        f'call_seconds_count{{{hello},by="call",outcome="SM-0201"}} 1',
        f'call_seconds_count{{{hello},by="burst",outcome="succeeded"}} 2',
        f'call_seconds_count{{{hello},by="burst",outcome="SM-0201"}} 1',
        'query_seconds_count{tenant="default",outcome="succeeded"} 1',
        'query_seconds_count{tenant="default",outcome="SM-0102"} 1',
    }
    # A query is counted when its driver is given back, after its answer.
    while not counts <= {line.removeprefix("snowmelt_") for line in metrics(up)}:
        assert not any("dropped" in line for line in metrics(up))


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"what": "raise"}, "SM-0201"),
        ({}, "SM-0201"),
        ({"what": "object"}, "SM-0202"),
        ({"what": "exit"}, "SM-0210"),
        ({"what": "sleep"}, "SM-0212"),
        ({"what": "memory"}, "SM-0213"),
    ],
)
def test_its_faults_have_codes_and_the_next_call_works(
    up: Snowmelt, tmp_path: Path, event: dict[str, str], code: str
) -> None:
    deploy(up, tmp_path, FAULTS, "--timeout", "3s", "--memory", "128MiB")
    up.run("fn", "call", "hello", "--data", json.dumps(event)).failed_with(code)
    assert call(up, {"what": "nothing"}) == "nothing"


def test_wrong_names_and_events(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, HELLO)
    up.run("fn", "call", "helo").failed_with("SM-0220", "helo")
    up.run("fn", "call", "hello", "--data", "{").failed_with("SM-0222")
    assert up.run("fn", "deploy", "no name!", tmp_path / "function.py").code == 2


@pytest.mark.parametrize("victim", ["server", "server and spawner"])
def test_kill_of_the_server_loses_no_acknowledged_call(
    up: Snowmelt, tmp_path: Path, victim: str
) -> None:
    deploy(up, tmp_path, HELLO)
    assert call(up, {})["hello"] == "world"
    server = status(up)["pid"]
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    for pid in [server, *map(int, children)] if victim != "server" else [server]:
        os.kill(pid, signal.SIGKILL)
    wait_for("its end", lambda: not Path(f"/proc/{server}").exists())
    up.run("status")
    up.run("up").succeeded()
    assert call(up, {"name": "again"})["hello"] == "again"


def test_functions_work_without_a_server(alone: Snowmelt, tmp_path: Path) -> None:
    deploy(alone, tmp_path, HELLO)
    assert call(alone, {"name": "embedded"})["hello"] == "embedded"
