"""Two controls that share one etcd: one leads, and the other one takes its place."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest
from conftest import SERVER_USER, Snowmelt, short_folder, wait_for
from controls import Controls, controls, replaced
from test_calls import Unix

# A server that gave up root leaves that to its service manager, which these tests have not.
begins_again = pytest.mark.skipif(
    bool(SERVER_USER), reason="a control that gave up root does not begin again by itself"
)

CODE = "def handler(event):\n    return event * 2\n"


@pytest.fixture
def cluster(machine: None) -> Iterator[Controls]:
    with short_folder() as folder, controls(folder, ["one", "two"]) as cluster:
        yield cluster


def deploy(control: Snowmelt, tmp_path: Path, code: str = CODE) -> None:
    file = tmp_path / "function.py"
    file.write_text(code)
    control.run("fn", "deploy", "f", file).succeeded()


class Caller(threading.Thread):
    """Makes asynchronous calls of one control after the other until it is told to stop."""

    def __init__(self, sockets: list[Path]) -> None:
        super().__init__()
        self.sockets = sockets
        self.stops = threading.Event()
        self.acknowledged: dict[str, int] = {}

    def run(self) -> None:
        event = 0
        while not self.stops.is_set():
            event += 1
            identity = self.call(event)
            if identity is None:
                self.sockets.append(self.sockets.pop(0))
                time.sleep(0.02)
            else:
                self.acknowledged[identity] = event

    def call(self, event: int) -> str | None:
        """The identity of a call that was acknowledged. An unanswered one is never repeated."""
        try:
            connection = Unix(self.sockets[0])
            connection.sock.settimeout(3)
            body = json.dumps({"event": event, "asynchronous": True})
            connection.request("POST", "/v1/functions/f/invocations", body)
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except (OSError, HTTPException, ValueError):
            return None
        return str(said["id"]) if answer.status == 202 else None


def ended(control: Snowmelt, identity: str) -> dict[str, object]:
    connection = Unix(control.folder / "state/snowmelt.sock")
    connection.request("GET", f"/v1/invocations/{identity}")
    return dict(json.loads(connection.getresponse().read()))


def test_nothing_acknowledged_is_lost_when_the_control_that_leads_is_killed(
    cluster: Controls, tmp_path: Path
) -> None:
    assert cluster.leader() == "one"
    assert "`one at" in cluster.store("two")
    one, two = cluster.controls.values()
    deploy(one, tmp_path)
    cluster.join("three")
    wait_for("the host", lambda: '"three"' in one.run("hosts", "-o", "json").out)
    two.run("fn", "ls").failed_with("SM-0529", "another control leads")

    caller = Caller([control.folder / "state/snowmelt.sock" for control in (one, two)])
    caller.start()
    wait_for("calls", lambda: len(caller.acknowledged) > 100)
    cluster.signal("one", signal.SIGKILL)
    killed_at = len(caller.acknowledged)
    leader, seconds = replaced(cluster, "one")
    print(f"replaced after {seconds:.1f} s")
    wait_for("calls of the other control", lambda: len(caller.acknowledged) > killed_at + 100)
    caller.stops.set()
    caller.join()
    assert leader == "two"
    warned = 0
    for identity, event in caller.acknowledged.items():
        done = wait_for(
            f"call {identity}",
            lambda of=identity: (got := ended(two, of)).get("state") != "running" and got,
        )
        assert done["state"] == "succeeded", done
        assert done["result"] == event * 2
        warned += any(warning["code"] == "SM-0720" for warning in done.get("warnings", []))
    print(f"{len(caller.acknowledged)} calls, {warned} may have run before")
    wait_for("the host to report to it", lambda: '"three"' in two.run("hosts", "-o", "json").out)
    cluster.join("four")
    wait_for("a host that joins now", lambda: '"four"' in two.run("hosts", "-o", "json").out)
    # The one that was killed comes back, and stands by.
    cluster.up("one")
    assert "stands by, `two at" in cluster.store("one")


@begins_again
def test_hosts_follow_when_the_control_that_leads_is_cut_off_from_etcd(cluster: Controls) -> None:
    one, two = cluster.controls.values()
    cluster.join("three")
    wait_for("the host", lambda: '"three"' in one.run("hosts", "-o", "json").out)
    for line in cluster.lines["one"]:
        line.cut()
    replaced(cluster, "one")
    # It reaches the first control still, which does not know that it leads no more.
    wait_for("the host at the other one", lambda: '"three"' in two.run("hosts", "-o", "json").out)
    for line in cluster.lines["one"]:
        line.open()
    wait_for("the first one to stand by", lambda: "stands by" in cluster.store("one"))


def test_a_shared_folder_of_others_is_refused_and_an_open_one_closed(machine: None) -> None:
    with short_folder() as folder:
        shared = folder / "shared"
        shared.mkdir(mode=0o755)
        with controls(folder, ["one"]) as cluster:
            assert shared.stat().st_mode & 0o777 == 0o700
            cluster.controls["one"].run("down").succeeded()
            os.chown(shared, 64501, 64501)
            options = ["--listen", cluster.listen["one"], "--name", "one"]
            cluster.controls["one"].run("up", *options).failed_with("SM-0505", "belongs to")


def test_a_server_that_gave_up_root_leads(machine: None, tmp_path: Path) -> None:
    of_user = {"SNOWMELT_USER": "64700"}
    with short_folder() as folder, controls(folder, ["one"], environment=of_user) as cluster:
        one = cluster.controls["one"]
        # A record of more than 64 KiB is a file of the shared folder.
        deploy(one, tmp_path, CODE + "#" * (100 << 10))
        assert json.loads(one.run("fn", "call", "f", "--data", "2").succeeded().out) == 4
        assert (folder / "shared").stat().st_uid == 64700


@begins_again
def test_a_control_that_was_paused_changes_nothing_when_it_wakes(
    cluster: Controls, tmp_path: Path
) -> None:
    one, two = cluster.controls.values()
    deploy(one, tmp_path)
    pid = cluster.status("one")["pid"]
    cluster.signal("one", signal.SIGSTOP)
    late = one.start("fn", "rm", "f")
    leader, seconds = replaced(cluster, "one")
    print(f"replaced after {seconds:.1f} s")
    assert leader == "two"
    deploy(two, tmp_path, "def handler(event):\n    return event * 3\n")
    os.kill(pid, signal.SIGCONT)
    done = one.finish(late)
    assert done.code != 0, done.out
    # Its process begins again.
    wait_for("it to stand by", lambda: "stands by, `two at" in cluster.store("one"))
    assert cluster.status("one")["pid"] == pid
    assert "no longer leads" in (one.folder / "state/snowmelt.log").read_text()
    assert json.loads(two.run("fn", "call", "f", "--data", "2").succeeded().out) == 6
