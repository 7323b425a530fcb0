"""Leased instances on all hosts of a cluster: where they are, and what faults do to them."""

import json
import os
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Snowmelt, wait_for
from host_trees import Hosts, hosts
from lab import Lab, lab
from suites import client_of

from snowmelt._lease import Lease, Lost
from snowmelt._runtime import frames
from snowmelt._runtime.frames import Connection, ProtocolError
from snowmelt.engines import Remote, remote

CONTROL, OTHERS = "host-1", ["host-2", "host-3"]
CORES = os.cpu_count() or 1

REQUEST, REPLY = 18, 19

# A silent host is lost after some seconds, and ends its own leases of a lost control in a minute.
END_TIMEOUT = 150

# A call can leave a process behind that shows on the machine for as long as its instance is there.
HANDLER = """import os
import subprocess

calls = 0

def handler(event):
    global calls
    calls += 1
    if "mark" in event:
        subprocess.Popen(["/usr/bin/sleep", event["mark"]])
    if event.get("exit"):
        os._exit(3)
    return {"calls": calls, "text": event.get("text", "")[::-1]}
"""


@dataclass
class Leased:
    """An instance of a deployed function, leased on the local socket of control."""

    control: socket.socket
    instance: socket.socket
    host: str

    def call(self, **event: Any) -> Any:
        """The answer of a call. Raises `ConnectionError` if the instance is gone."""
        connection = Connection(self.instance)
        try:
            connection.send_json(frames.CALL, {"invocation": "i", "event": event})
            frame = connection.receive()
        except (OSError, ProtocolError) as error:
            raise ConnectionError(str(error)) from None
        if frame is None:
            raise ConnectionError("the instance is gone")
        assert frame[0] == frames.RETURN, bytes(frame[1])
        return json.loads(frame[1])

    def why(self) -> Any:
        """What control says of the end of the instance."""
        kind, said = Connection(self.control).receive() or (0, b"")
        assert kind == frames.FAILURE, (kind, bytes(said))
        return json.loads(said)

    def give_back(self) -> None:
        connection = Connection(self.control)
        connection.send(frames.END, b"")
        assert (connection.receive() or (0, b""))[0] == frames.END
        self.close()

    def close(self) -> None:
        self.control.close()
        self.instance.close()


@dataclass
class Three:
    """A lab of three hosts, with a function that is deployed."""

    lab: Lab
    socket: Path

    def lease(self, **more: Any) -> Leased:
        control = socket.socket(socket.AF_UNIX)
        control.settimeout(END_TIMEOUT)
        control.connect(str(self.socket.with_suffix(".lease")))
        connection = Connection(control)
        connection.send_json(REQUEST, {"runs": {"function": "f"}, **more})
        kind, answer, descriptor = connection.receive_with_descriptor() or (0, b"{}", None)
        assert kind == REPLY and descriptor is not None, bytes(answer)
        instance = socket.socket(fileno=descriptor)
        instance.settimeout(END_TIMEOUT)
        return Leased(control, instance, json.loads(answer).get("host", CONTROL))

    def leases(self, count: int) -> list[Leased]:
        """So many at the same time."""
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda _: self.lease(), range(count)))

    def on(self, host: str) -> Leased:
        """One on this host; all others are returned."""
        leased = self.leases(3 * CORES)
        [found, *_] = [one for one in leased if one.host == host]
        for one in leased:
            if one is not found:
                one.give_back()
        return found

    def calls(self) -> dict[str, int]:
        """Calls and leases on each host, as control counts them."""
        listed = json.loads(self.lab.client("hosts", "-o", "json"))
        return {one["name"]: one["calls"] for one in listed}

    def until_nothing_is_leased(self) -> None:
        wait_for("all leases to be over", lambda: not any(self.calls().values()))


def hosts_of(leased: list[Leased]) -> Counter[str]:
    return Counter(one.host for one in leased)


def is_there(mark: str) -> bool:
    """Whether a process of an instance runs that a call has left behind."""
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"/usr/bin/sleep", mark.encode()]:
            return True
    return False


def deployed(alone: Snowmelt, made: Lab, folder: Path) -> Three:
    [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
    file = folder / "f.py"
    file.write_text(HANDLER)
    made.client("fn", "deploy", "f", file, "--memory", "64MiB", "--instances", 100)
    return Three(made, socket)


@pytest.fixture
def three(alone: Snowmelt, tmp_path: Path) -> Iterator[Three]:
    with lab(alone, 3, "--link", "1gbit", "--memory", "1GiB") as made:
        found = deployed(alone, made, tmp_path)
        wait_for("all hosts to be used", lambda: all_are_used(found))
        yield found


def all_are_used(three: Three) -> bool:
    """Until the scheduler knows of all hosts: it reads the reports once a second."""
    leased = three.leases(3 * CORES)
    for one in leased:
        one.give_back()
    return len(hosts_of(leased)) == 3


def test_instances_are_on_all_hosts_and_answer_as_those_of_controls_own(three: Three) -> None:
    # One after the other, all on control's own host: all that is sent would go through it.
    alone = [three.lease() for _ in range(CORES)]
    assert hosts_of(alone) == {CONTROL: CORES}
    # When its cores are taken, on the others.
    leased = [*alone, *three.leases(2 * CORES)]
    assert hosts_of(leased) == {CONTROL: CORES, **dict.fromkeys(OTHERS, CORES)}
    assert three.calls() == hosts_of(leased)
    text = "snow" * 1_000_000

    def speak(one: Leased) -> list[int]:
        first = one.call()["calls"]
        assert one.call(text=text)["text"] == text[::-1]
        return [call - first for call in (one.call()["calls"], one.call()["calls"])]

    with ThreadPoolExecutor(len(leased)) as pool:
        # Each client has an instance of its own.
        assert list(pool.map(speak, leased)) == [[2, 3]] * len(leased)
    # A client that sends descriptors has its instance on control's own host, however busy that is.
    near = three.lease(here=True)
    assert near.host == CONTROL
    near.give_back()
    # What is returned is leased again, where it was.
    far = next(one for one in leased if one.host in OTHERS)
    count = far.call()["calls"]
    far.give_back()
    again = three.lease()
    assert again.host == far.host and again.call()["calls"] == count + 1
    with pytest.raises(OSError):
        far.call()
    for one in [again, *(one for one in leased if one is not far)]:
        one.give_back()
    three.until_nothing_is_leased()


def test_the_end_of_an_instance_elsewhere_is_told(three: Three) -> None:
    far = three.on("host-2")
    far.call(mark="86301.1")
    assert is_there("86301.1")
    with pytest.raises(ConnectionError):
        far.call(exit=True)
    assert far.why()["code"] == "SM-0210"
    far.close()
    wait_for("the instance to end", lambda: not is_there("86301.1"))
    # What is not returned is destroyed, and so is what its client leaves behind when it ends.
    for close in (lambda one: one.close(), lambda one: one.control.close()):
        far = three.on("host-3")
        far.call(mark="86301.2")
        close(far)
        wait_for("the instance to end", lambda: not is_there("86301.2"))
        three.until_nothing_is_leased()
        far.close()


@pytest.mark.parametrize("how", ["kill", "freeze", "unplug"])
def test_a_host_that_is_lost_is_named_and_the_next_lease_is_elsewhere(
    three: Three, how: str
) -> None:
    far, near = three.on("host-3"), three.lease()
    far.call(mark="86302.1")
    assert near.host == CONTROL
    three.lab.fail("host-3", how)
    with pytest.raises(ConnectionError):
        while True:
            far.call()
    why = far.why()
    assert why["code"] == "SM-0712", why
    assert "host-3 was lost" in why["message"] and why["retryable"], why
    far.close()
    wait_for("control to forget it", lambda: "host-3" not in three.calls())
    # It counts nowhere, the other leases go on, and new ones are on the other hosts.
    assert three.calls() == {CONTROL: 1, "host-2": 0}
    assert near.call()["calls"] > 0
    others = three.leases(2 * CORES - 1)
    assert hosts_of([near, *others]) == {CONTROL: CORES, "host-2": CORES}
    for one in [near, *others]:
        one.call()
        one.give_back()
    if how != "freeze":
        # Also the instance of a host that runs, and hears nothing of control.
        wait_for("the instance to end", lambda: not is_there("86302.1"), END_TIMEOUT)
    three.lab.heal("host-3")
    wait_for("the instance to end", lambda: not is_there("86302.1"))
    wait_for("the host to be used again", lambda: all_are_used(three))
    three.until_nothing_is_leased()


def test_leases_end_with_control(three: Three) -> None:
    leased = [three.lease(), three.on("host-2")]
    for number, one in enumerate(leased):
        one.call(mark=f"86303.{number}")
    three.lab.fail(CONTROL)
    for one in leased:
        # Those of its own host are ended by the spawner, which sees it end.
        with pytest.raises(ConnectionError):
            while True:
                one.call()
        one.close()
    for number in range(len(leased)):
        wait_for("the instances to end", lambda number=number: not is_there(f"86303.{number}"))
    three.lab.heal(CONTROL)
    # The next control knows nothing of them.
    three.until_nothing_is_leased()
    wait_for("all hosts to be used", lambda: all_are_used(three))


def one_on_each_host(three: Three) -> list[Leased] | None:
    leased = three.leases(3)
    if hosts_of(leased) == {CONTROL: 1, **dict.fromkeys(OTHERS, 1)}:
        return leased
    for one in leased:
        one.give_back()
    return None


def test_a_lease_waits_until_another_one_is_over(alone: Snowmelt, tmp_path: Path) -> None:
    alone.environment["SNOWMELT_CLUSTER_INSTANCES_PER_HOST"] = "1"
    with lab(alone, 3, "--link", "1gbit", "--memory", "1GiB") as made:
        three = deployed(alone, made, tmp_path)

        leased = wait_for("all hosts to be used", lambda: one_on_each_host(three))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(three.lease)
            assert three.calls() == dict.fromkeys([CONTROL, *OTHERS], 1)
            assert not waiting.done()
            far = next(one for one in leased if one.host == "host-3")
            far.give_back()
            next_one = waiting.result(END_TIMEOUT)
        assert next_one.host == "host-3"
        for one in leased:
            if one is not far:
                one.give_back()
        next_one.give_back()
        three.until_nothing_is_leased()


def asks_by_the_api(three: Three) -> socket.socket:
    """A client of the API that waits for an instance."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(END_TIMEOUT)
    client.connect(str(three.socket))
    client.sendall(
        b"GET /v1/leases HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: snowmelt\r\n\r\n"
    )
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = client.recv(1)
        assert byte, answer
        answer += byte
    assert answer.startswith(b"HTTP/1.1 101 "), answer
    Connection(client).send_json(REQUEST, {"runs": {"function": "f"}})
    return client


def asks_by_the_local_socket(three: Three) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(three.socket.with_suffix(".lease")))
    Connection(client).send_json(REQUEST, {"runs": {"function": "f"}})
    return client


def test_a_client_that_ends_while_it_waits_gets_no_instance(
    alone: Snowmelt, tmp_path: Path
) -> None:
    alone.environment["SNOWMELT_CLUSTER_INSTANCES_PER_HOST"] = "1"
    with lab(alone, 3, "--link", "1gbit", "--memory", "1GiB") as made:
        three = deployed(alone, made, tmp_path)
        leased = wait_for("all hosts to be used", lambda: one_on_each_host(three))
        far = next(one for one in leased if one.host == "host-3")
        count = far.call()["calls"]
        # They wait before the one that goes on.
        gone = [asks_by_the_api(three), asks_by_the_local_socket(three)]
        time.sleep(1)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(three.lease)
            time.sleep(1)
            for client in gone:
                client.close()
            far.give_back()
            next_one = waiting.result(END_TIMEOUT)
        # Nobody else has had the instance that was returned: it would have been destroyed.
        assert next_one.host == "host-3" and next_one.call()["calls"] == count + 1
        for one in [next_one, *(one for one in leased if one is not far)]:
            one.give_back()
        three.until_nothing_is_leased()


def kernel_ends_connections() -> bool:
    """Whether `ss -K` works: a kernel may lack it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            port = near.getsockname()[1]
            subprocess.run(["ss", "-K", "sport", "=", f":{port}"], capture_output=True, check=False)
            near.setblocking(False)
            try:
                near.recv(1)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return True


def test_a_connection_that_breaks_is_no_host_that_is_lost(three: Three) -> None:
    assert kernel_ends_connections(), "this kernel lacks CONFIG_INET_DIAG_DESTROY"
    far = three.on("host-3")
    far.call(mark="86304.1")
    three.lab.break_connections(CONTROL, "host-3")
    with pytest.raises(ConnectionError):
        far.call()
    why = far.why()
    assert why["code"] == "SM-0715" and why["retryable"], why
    assert "the connection to host-3 broke" in why["message"] and "may have run" in why["hint"]
    far.close()
    wait_for("the instance to end", lambda: not is_there("86304.1"))
    three.until_nothing_is_leased()
    assert set(three.calls()) == {CONTROL, *OTHERS}
    wait_for("the host to be used", lambda: all_are_used(three))


UDFS = """import time

import snowmelt as sm

with open(sm.file("model.txt")) as file:
    MODEL = file.read()

@sm.udf(timeout="10m")
def tagged(n: int) -> str:
    print("called with", n, flush=True)
    if n > 1_000_000:
        time.sleep(600)
    return f"{n}:{MODEL}:{sm.secret('API_KEY')[::-1]}"
"""

SECRET, MODEL = "swordfish", "a model"

# A number that no row has.
WARM = 77_777


@pytest.fixture
def cluster(alone: Snowmelt, tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts that can install packages, with a function that has a file and a secret."""
    alone.environment["THE_KEY"] = SECRET
    with (
        hosts(alone, ["h2", "h3"]) as made,
        client_of(alone.folder / "state" / "snowmelt.sock"),
    ):
        code, model = tmp_path / "udfs.py", tmp_path / "model.txt"
        code.write_text(UDFS)
        model.write_text(MODEL)
        made.control.run(
            "udf", "add", code, "--file", model, "--secret", "API_KEY=env:THE_KEY"
        ).succeeded()
        yield made


def expected(n: int) -> str:
    return f"{n}:{MODEL}:{SECRET[::-1]}"


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=["n"])


def leases_on_all(called: Remote) -> dict[str, Lease]:
    """A lease on each host; the first ones wait until the host has installed the packages."""
    leased = [called.lease() for _ in range(3 * CORES)]
    by_host: dict[str, Lease] = {}
    for one in leased:
        host = one._link.host or "h1"
        assert one.call(batch(WARM)).to_pylist() == [expected(WARM)]
        if by_host.setdefault(host, one) is not one:
            one.give_back()
    return by_host


def test_engines_call_a_function_with_files_and_secrets_on_all_hosts(cluster: Hosts) -> None:
    rows = [*range(10_000)]
    with remote("tagged", instances=3 * CORES) as called:
        by_host = leases_on_all(called)
        assert set(by_host) == {"h1", "h2", "h3"}
        for one in by_host.values():
            one.give_back()
        assert called(pa.array(rows)).to_pylist() == [expected(n) for n in rows]
    log = cluster.control.run("udf", "log", "tagged", "--tail", "1000000").succeeded().out
    assert log.count(f"called with {WARM}\n") == 3 * CORES
    # In memory that both map, on control's own host only.
    with remote("tagged", instances=3 * CORES, transport="shared") as called:
        leased = [called.lease() for _ in range(CORES + 1)]
        assert all(one._link.host is None for one in leased)
        for one in leased:
            one.give_back()
        assert called(pa.array(rows)).to_pylist() == [expected(n) for n in rows]
    for name in ("h2", "h3"):
        assert SECRET not in cluster.log(name)


def test_an_engine_goes_on_when_a_host_is_killed(cluster: Hosts) -> None:
    called = remote("tagged")
    by_host = leases_on_all(called)
    lost: list[Lost] = []

    def waits() -> None:
        try:
            by_host["h2"].call(batch(1_000_001))
        except Lost as error:
            lost.append(error)

    waiting = threading.Thread(target=waits)
    waiting.start()
    cluster.kill("h2")
    waiting.join(END_TIMEOUT)
    assert [one.error.code for one in lost] == ["SM-0712"]
    assert "h2 was lost" in lost[0].error.message and lost[0].error.retryable
    # The instances of other hosts go on.
    for host in ("h1", "h3"):
        assert by_host[host].call(batch(1, 2)).to_pylist() == [expected(1), expected(2)]
        by_host[host].give_back()
    by_host["h2"].end()
    rows = [*range(10_000)]
    with remote("tagged", instances=2 * CORES) as again:
        assert again(pa.array(rows)).to_pylist() == [expected(n) for n in rows]
