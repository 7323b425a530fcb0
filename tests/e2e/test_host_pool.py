"""Hosts that are reclaimed from functions which are not called there any more: no call is lost by
it, trees of images shrink, and a restarted control knows what hosts still have. Hosts of a lab that
control starts when calls wait, and ends when they are free."""

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for
from host_trees import Hosts, free_ports, hosts
from images import Image
from lab import Lab, lab
from suites import client_of
from test_drained_hosts import listed, states
from test_function_hosts import HANDLER, call, together
from test_function_hosts import deploy as deploy_in_lab
from test_image_trees import BALLAST, SMALL, deploy, parents
from test_images import code, digest, home, made, pushed

__all__ = ["code", "home", "made", "pushed"]

OTHERS = ["h2", "h3"]


def cluster_of(control: Snowmelt, reclaim_after: str) -> Iterator[Hosts]:
    control.environment["SNOWMELT_CLUSTER_RECLAIM_AFTER"] = reclaim_after
    with hosts(control, OTHERS) as cluster, client_of(control.folder / "state" / "snowmelt.sock"):
        yield cluster


@pytest.fixture
def three(alone: Snowmelt) -> Iterator[Hosts]:
    yield from cluster_of(alone, "6s")


@pytest.fixture
def hasty(alone: Snowmelt) -> Iterator[Hosts]:
    """What is not called when control looks, once a second, is taken back."""
    yield from cluster_of(alone, "1ms")


def prepared(cluster: Hosts, name: str) -> list[str]:
    """The functions that a host says it has."""
    address = listed(cluster)[name]["address"]
    token = {"authorization": f"Bearer {cluster.token.read_text().strip()}"}
    request = urllib.request.Request(f"http://{address}/v1/functions", headers=token)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return list(json.load(answer))


def ran_on(invocations: list[Any]) -> set[str]:
    """Before control knows others, calls run on its own host and do not name it."""
    return {one.get("host", "h1") for one in invocations if one["state"] == "succeeded"}


def until_all_hosts_run(event: dict[str, Any], function: str) -> list[Any]:
    """Invocations that ran on all hosts."""

    def on_all() -> list[Any] | None:
        ran = together([event] * 9, function)
        assert all(one["state"] == "succeeded" for one in ran), ran
        return ran if len(ran_on(ran)) == 3 else None

    return list(wait_for("calls on all hosts", on_all, seconds=180))


def deploy_plain(cluster: Hosts, folder: Path) -> None:
    (folder / "f.py").write_text(HANDLER)
    limits = ["--memory", "64MiB", "--timeout", "100s"]
    cluster.control.run("fn", "deploy", "f", folder / "f.py", *limits).succeeded()


def test_hosts_without_calls_become_free_and_leave_the_tree_of_the_image(
    pushed: str, made: Image, code: Path, three: Hosts
) -> None:
    assert states(three) == {"h1": "active", "h2": "free", "h3": "free"}
    deploy(three, code, pushed)
    expected = digest(made.ballast)
    ran = until_all_hosts_run({"read": BALLAST, "pause": 0.01}, "read")
    assert {one["result"] for one in ran} == {expected}
    # A call that takes longer than the time holds its host, and nothing else does.
    with ThreadPoolExecutor(3) as pool:
        slow = [pool.submit(call, {"read": BALLAST, "pause": 0.4}, "read") for _ in range(3)]
        wait_for("the calls to begin", lambda: calls(three) == 3)
        busy = {name for name, host in listed(three).items() if host["calls"]}
        for name in set(OTHERS) - busy:
            wait_for(f"{name} to be free", lambda name=name: states(three)[name] == "free")
        now = listed(three)
        assert all(now[name]["state"] == "active" for name in busy if now[name]["calls"])
        assert {one.result()["result"] for one in slow} == {expected}
    wait_for("all others to be free", lambda: all(states(three)[one] == "free" for one in OTHERS))
    wait_for("a tree with control alone", lambda: set(parents(three)) == {"h1"})
    for name in OTHERS:
        wait_for(f"{name} to forget", lambda name=name: not prepared(three, name))
    # Its children have other parents: control reads from the registry alone.
    assert parents(three)["h1"] == [None, None]
    shown = three.control.run("hosts").succeeded().out
    assert shown.count("│ free ") == 2, shown

    # They are used again, and read what they have cached.
    ran = until_all_hosts_run({"read": SMALL, "pause": 0.5}, "read")
    assert {one["result"] for one in ran} == {digest(made.rootfs / SMALL[1:])}
    assert set(states(three).values()) == {"active"}
    assert set(parents(three)) == {"h1", *OTHERS}


def calls(cluster: Hosts) -> int:
    return sum(int(host["calls"]) for host in listed(cluster).values())


def test_no_call_is_lost_while_hosts_are_reclaimed(hasty: Hosts, tmp_path: Path) -> None:
    deploy_plain(hasty, tmp_path)
    started_again = 0
    used: set[str] = set()

    def round_of_calls() -> bool:
        nonlocal started_again
        ran = together([{"word": number, "sleep": 0.05} for number in range(9)])
        assert [one["result"]["word"] for one in ran] == list(range(9)), ran
        # Instances are kept for minutes: if all calls on a host are cold, its instances were ended.
        warm = {one.get("host", "h1") for one in ran if not one["cold"]}
        started_again += len((ran_on(ran) - warm) & used - {"h1"})
        used.update(ran_on(ran))
        return started_again >= 6

    wait_for("hosts to be reclaimed again and again", round_of_calls, seconds=240)
    wait_for("all to be free", lambda: all(states(hasty)[name] == "free" for name in OTHERS))


def test_what_an_earlier_control_had_prepared_is_reclaimed(three: Hosts, tmp_path: Path) -> None:
    deploy_plain(three, tmp_path)
    until_all_hosts_run({"sleep": 0.3}, "f")
    assert all(prepared(three, name) for name in OTHERS)
    pid = json.loads(three.control.run("status", "-o", "json").succeeded().out)["pid"]
    three.control.run("down").succeeded()
    three.control.environment["SNOWMELT_CLUSTER_RECLAIM_AFTER"] = "2s"
    three.up()
    again = json.loads(three.control.run("status", "-o", "json").succeeded().out)["pid"]
    assert again != pid
    wait_for("the hosts to come back", lambda: len(listed(three)) == 3)
    for name in OTHERS:
        wait_for(f"{name} to forget", lambda name=name: not prepared(three, name))
        wait_for(f"{name} to be free", lambda name=name: states(three)[name] == "free")


def test_a_function_that_keeps_instances_prewarmed_keeps_its_host(
    alone: Snowmelt, tmp_path: Path
) -> None:
    # Control takes no functions itself.
    alone.environment["SNOWMELT_HOST_MEMORY"] = "0"
    alone.environment["SNOWMELT_CLUSTER_RECLAIM_AFTER"] = "1s"
    with hosts(alone, []) as cluster, client_of(alone.folder / "state" / "snowmelt.sock"):
        del alone.environment["SNOWMELT_HOST_MEMORY"]
        cluster.join("h2", next(port for port in free_ports(2) if port != cluster.port))
        limits = ["--memory", "64MiB", "--prewarmed", "1"]
        for name, options in [("kept", limits), ("f", limits[:2])]:
            (tmp_path / "f.py").write_text(HANDLER.replace("said", name))
            deploying = ("fn", "deploy", name, tmp_path / "f.py", *options)
            # The scheduler knows of the host a second later.
            wait_for("the host to be used", lambda words=deploying: not alone.run(*words).code)
        assert call({"word": 1})["result"]["word"] == 1
        wait_for("one function to be left", lambda: len(prepared(cluster, "h2")) == 1)
        assert states(cluster)["h2"] == "active"
        assert call({"word": 2}, "kept")["cold"] is False
        alone.run("fn", "rm", "kept").succeeded()
        wait_for("the host to be free", lambda: states(cluster)["h2"] == "free")
        assert prepared(cluster, "h2") == []


@pytest.fixture
def elastic(alone: Snowmelt) -> Iterator[Lab]:
    """A lab of three hosts of which control's own runs, with room for one instance on each."""
    alone.environment |= {
        "SNOWMELT_CLUSTER_RECLAIM_AFTER": "4s",
        "SNOWMELT_CLUSTER_INSTANCES_PER_HOST": "1",
    }
    with lab(alone, 3, "--started", 1, "--memory", "1GiB") as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


def known(made: Lab) -> set[str]:
    return set(made.ranks())


def running(made: Lab) -> set[str]:
    return {host["name"] for host in made.states() if host["runs"]}


def pool(made: Lab) -> dict[str, Any]:
    return dict(json.loads(made.client("status", "-o", "json"))["pool"])


def until_three_run() -> None:
    """Calls that wait have hosts started until all run some."""

    def on_all() -> bool:
        ran = together([{"word": number, "sleep": 1} for number in range(6)])
        assert [one["result"]["word"] for one in ran] == list(range(6)), ran
        return len({one["host"] for one in ran}) == 3

    wait_for("calls on three hosts", on_all, seconds=300)


def test_hosts_are_started_for_calls_that_wait_and_ended_when_they_are_free(
    elastic: Lab, tmp_path: Path
) -> None:
    assert known(elastic) == running(elastic) == {"host-1"}
    deploy_in_lab(elastic, tmp_path, "--memory", "64MiB", "--timeout", "200s")
    # One call at a time needs no other host.
    assert {call({"word": 1})["host"] for _ in range(5)} == {"host-1"}
    assert pool(elastic)["provided"] == 0
    until_three_run()
    assert running(elastic) == {"host-1", "host-2", "host-3"}
    shown = {"is_elastic": True, "least": 1, "most": 3, "provided": 2, "failure": None}
    wait_for("control to know them", lambda: pool(elastic).items() >= shown.items())

    # Calls go on while a host is released, and keep the others.
    def one_is_released() -> bool:
        ran = together([{"word": number, "sleep": 0.2} for number in range(2)])
        assert [one["result"]["word"] for one in ran] == [0, 1], ran
        return len(running(elastic)) == 2

    wait_for("a host to be released", one_is_released, seconds=180)
    wait_for("control to be alone", lambda: running(elastic) == {"host-1"}, seconds=180)
    wait_for("control to know it", lambda: known(elastic) == {"host-1"})
    assert call({"word": 2})["result"]["word"] == 2
    # A host that comes back gets work.
    until_three_run()


def test_calls_go_on_while_the_provider_fails(elastic: Lab, tmp_path: Path) -> None:
    deploy_in_lab(elastic, tmp_path, "--memory", "64MiB", "--timeout", "200s")
    [program] = (elastic.snowmelt.folder / "run" / "labs").glob("*/provider")
    works = program.read_text()
    program.write_text("#!/bin/sh\necho no quota left >&2\nexit 7\n")

    def has_failed() -> Any:
        ran = together([{"word": number, "sleep": 1} for number in range(5)])
        assert [one["result"]["word"] for one in ran] == list(range(5)), ran
        return pool(elastic)["failure"]

    failure = wait_for("the provider to fail", has_failed, seconds=180)
    assert failure["code"] == "SM-0714" and "no quota left" in failure["message"]
    assert "no quota left" in elastic.client("status")
    assert running(elastic) == {"host-1"}
    program.write_text(works)
    until_three_run()
    assert pool(elastic)["failure"] is None


def test_hosts_are_started_for_a_burst_and_stay_as_long_as_it_runs(elastic: Lab) -> None:
    slow = """
        import time

        def slow(rank):
            time.sleep(15)
            return rank * 5

        done = sm.burst(slow, 3, memory="600MiB", progress=False)
        print(json.dumps([list(done), [part["host"] for part in done.hosts]]))
    """
    program = elastic.start(slow)

    def waits_for() -> Any:
        bursts = elastic.bursts()
        return bursts and bursts[-1]["state"] == "waiting" and bursts[-1]["waits_for"]

    # It has the room of at least one host, which is not enough.
    assert wait_for("the burst to wait", waits_for)["hosts"] >= 1
    wait_for("all to be started", lambda: len(running(elastic)) == 3, seconds=180)
    wait_for("the burst", lambda: elastic.bursts()[-1]["state"] == "running", seconds=180)
    # The time after which free hosts are ended passes again and again.
    while elastic.bursts()[-1]["state"] == "running":
        states = json.loads(elastic.client("hosts", "-o", "json"))
        assert {host["name"] for host in states} == {"host-1", "host-2", "host-3"}
    out, said = program.communicate(timeout=60)
    assert program.returncode == 0, said
    assert json.loads(out) == [[0, 5, 10], ["host-1", "host-2", "host-3"]]
    wait_for("control to be alone", lambda: running(elastic) == {"host-1"}, seconds=180)
