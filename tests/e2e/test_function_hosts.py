"""Deployed functions on all hosts of a lab: where calls run, and what becomes of them in faults."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for
from lab import Lab, lab
from suites import client_of

import snowmelt as sm
from snowmelt._client import client
from snowmelt.errors import Error

CONTROL = "host-1"

# Each call notes that it has begun, in a folder that all hosts of a lab see.
HANDLER = """import os
import time

def handler(event):
    time.sleep(event.get("sleep", 0))
    if event.get("fail"):
        raise ValueError("as asked")
    if event.get("exit"):
        os._exit(3)
    print("said", event.get("word"))
    return {"word": event.get("word"), "pid": os.getpid()}
"""


@pytest.fixture
def three(alone: Snowmelt) -> Iterator[Lab]:
    with lab(alone, 3, "--link", "1gbit", "--memory", "1GiB") as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


def deploy(made: Lab, folder: Path, *options: object, text: str = HANDLER) -> None:
    file = folder / "f.py"
    file.write_text(text)
    made.client("fn", "deploy", "f", file, *options)


def call(event: Any, function: str = "f") -> Any:
    """An invocation, failed or not."""
    try:
        return client().call("POST", f"/v1/functions/{function}/invocations", {"event": event})
    except Error as error:
        return {"state": "failed", "error": {"code": error.code, "message": error.message}}


def together(events: list[Any], function: str = "f") -> list[Any]:
    with ThreadPoolExecutor(len(events)) as pool:
        return list(pool.map(lambda event: call(event, function), events))


def hosts(invocations: list[Any]) -> Counter[str]:
    """On how many hosts they ran; a platform of one host does not name it."""
    return Counter(one.get("host", CONTROL) for one in invocations)


def wait_for_hosts(made: Lab, count: int) -> None:
    """Until the scheduler knows of them: it reads the reports once a second."""
    wait_for("the hosts to be used", lambda: len(hosts(together([{"sleep": 0.2}] * 6))) == count)


def test_calls_run_on_all_hosts_and_an_idle_instance_is_used_first(
    three: Lab, tmp_path: Path
) -> None:
    deploy(three, tmp_path, "--memory", "64MiB")
    wait_for_hosts(three, 3)
    # One after the other, all on the instance of control's own host.
    ran = [call({"word": number}) for number in range(5)]
    assert [one["result"]["word"] for one in ran] == list(range(5))
    assert hosts(ran) == {CONTROL: 5}
    assert not any(one["cold"] for one in ran[1:])
    # At the same time on instances of several, each with its own log and answer.
    ran = together([{"word": number, "sleep": 0.3} for number in range(6)])
    assert [one["result"]["word"] for one in ran] == list(range(6))
    assert len(hosts(ran)) == 3
    elsewhere = next(one for one in ran if one["host"] != CONTROL)
    said = three.client("fn", "logs", "f", "--invocation", elsewhere["id"])
    assert f"said {elsewhere['result']['word']}" in said
    # An error is the function's own on all hosts.
    failed = together([{"fail": True, "sleep": 0.3}] * 6)
    assert {one["error"]["code"] for one in failed} == {"SM-0201"}
    ended = together([{"exit": True, "sleep": 0.3}] * 6)
    assert {one["error"]["code"] for one in ended} == {"SM-0210"}
    # A new version is used everywhere.
    deploy(three, tmp_path, "--memory", "64MiB", text=HANDLER.replace("said", "told"))
    ran = together([{"word": number, "sleep": 0.3} for number in range(6)])
    assert len(hosts(ran)) == 3
    told = [three.client("fn", "logs", "f", "--invocation", one["id"]) for one in ran]
    assert all("told" in text for text in told)


def test_maps_and_asynchronous_calls_run_on_all_hosts(three: Lab, tmp_path: Path) -> None:
    deploy(three, tmp_path, "--memory", "64MiB")
    wait_for_hosts(three, 3)
    events = [
        {"event": {"word": number, "sleep": 0.3}, "asynchronous": True} for number in range(9)
    ]
    ids = [client().call("POST", "/v1/functions/f/invocations", event)["id"] for event in events]
    done = [
        wait_for("the call", lambda id=id: ended(client().call("GET", f"/v1/invocations/{id}")))
        for id in ids
    ]
    assert [one["result"]["word"] for one in done] == list(range(9))
    assert len(hosts(done)) == 3

    def twice(number: int) -> int:
        time.sleep(2)
        return 2 * number

    others, seen = {"host-2", "host-3"}, set[str]()

    def calls_on_others() -> bool:
        # To look at a host takes a part of a second, and its calls may have ended by then.
        seen.update(host for host in others - seen if running_on(three, host))
        return seen == others

    is_seen = threading.Event()

    def map_until_seen() -> None:
        # A host on a busy machine may take longer to prepare the function than one map.
        while not is_seen.is_set():
            mapped = sm.map(twice, range(24), workers=6)
            assert mapped == [2 * number for number in range(24)]

    with ThreadPoolExecutor(1) as pool:
        mapping = pool.submit(map_until_seen)
        try:
            wait_for("calls on host-2 and host-3", lambda: mapping.done() or calls_on_others())
        finally:
            is_seen.set()
        mapping.result()
        assert seen == others


def ended(invocation: Any) -> Any:
    return invocation if invocation["state"] != "running" else None


def test_a_call_whose_connection_breaks_fails_and_its_host_goes_on(
    three: Lab, tmp_path: Path
) -> None:
    deploy(three, tmp_path, "--memory", "64MiB", "--timeout", "10m")
    wait_for_hosts(three, 3)
    ran: list[Any] = []
    event = {"word": "long", "sleep": 600}
    for _ in range(6):
        threading.Thread(target=lambda: ran.append(call(event)), daemon=True).start()
    for name in ("host-2", "host-3"):
        wait_for(f"calls on {name}", lambda name=name: running_on(three, name))
    for name in ("host-2", "host-3"):
        three.break_connections(CONTROL, name)

    def broken() -> list[Any]:
        return [one for one in ran if one["state"] == "failed"]

    wait_for("calls to fail", broken)
    assert {one["error"]["code"] for one in broken()} == {"SM-0715"}, broken()
    # Both hosts go on, and their instances that nobody waits for end.
    for name in ("host-2", "host-3"):
        wait_for(f"no calls on {name}", lambda name=name: not running_on(three, name))
    assert {one["name"] for one in json.loads(three.client("hosts", "-o", "json"))} == {
        CONTROL,
        "host-2",
        "host-3",
    }
    assert {"host-2", "host-3"} & hosts(together([{"sleep": 0.2}] * 4)).keys()


def test_a_call_on_a_lost_host_fails_and_an_accepted_one_runs_again(
    three: Lab, tmp_path: Path
) -> None:
    deploy(three, tmp_path, "--memory", "64MiB", "--timeout", "60s")
    wait_for_hosts(three, 3)
    ran: list[Any] = []
    events = [{"word": number, "sleep": 4} for number in range(6)]
    threads = [
        threading.Thread(target=lambda event=event: ran.append((event, call(event))))
        for event in events
    ]
    for thread in threads:
        thread.start()
    accepted = [
        client().call(
            "POST",
            "/v1/functions/f/invocations",
            {"event": {"word": f"later {number}", "sleep": 3}, "asynchronous": True},
        )
        for number in range(3)
    ]
    wait_for("calls on host-3", lambda: running_on(three, "host-3"))
    three.fail("host-3")
    for thread in threads:
        thread.join()
    lost = [one for _, one in ran if one["state"] == "failed"]
    assert lost and {one["error"]["code"] for one in lost} == {"SM-0712"}
    assert all("host-3 was lost" in one["error"]["message"] for one in lost)
    for event, one in ran:
        assert one["state"] == "failed" or one["result"]["word"] == event["word"]
    for number, one in enumerate(accepted):
        done = wait_for(
            "the accepted call",
            lambda one=one: ended(client().call("GET", f"/v1/invocations/{one['id']}")),
        )
        assert done["result"]["word"] == f"later {number}", done
    # The others take its calls, and it takes calls again when it is back.
    assert hosts(together([{"sleep": 0.2}] * 4)).keys() <= {"host-1", "host-2"}
    three.heal("host-3")
    wait_for_hosts(three, 3)


def test_accepted_calls_survive_control(three: Lab, tmp_path: Path) -> None:
    deploy(three, tmp_path, "--memory", "64MiB", "--timeout", "60s")
    wait_for_hosts(three, 3)
    events = [{"event": {"word": number, "sleep": 2}, "asynchronous": True} for number in range(9)]
    ids = [client().call("POST", "/v1/functions/f/invocations", event)["id"] for event in events]
    wait_for("calls on host-2", lambda: running_on(three, "host-2"))
    three.fail(CONTROL)
    three.heal(CONTROL)
    # Hosts ended the calls of the control that was killed, and the next one runs them again.
    for number, id in enumerate(ids):
        done = wait_for(
            "the call", lambda id=id: ended(client().call("GET", f"/v1/invocations/{id}"))
        )
        assert done["result"]["word"] == number, done
    wait_for("all calls to be over", lambda: not calls_anywhere(three))


def calls_anywhere(made: Lab) -> int:
    return sum(one["calls"] for one in json.loads(made.client("hosts", "-o", "json")))


def running_on(made: Lab, host: str) -> bool:
    """Whether calls run on a host."""
    listed = json.loads(made.client("hosts", "-o", "json"))
    return any(one["name"] == host and one["calls"] > 0 for one in listed)
