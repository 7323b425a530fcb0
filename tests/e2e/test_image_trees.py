"""Images of several hosts: the registry sends each block about once, unless trees are off, and a
host that dies, lies or has a damaged disk changes no answer."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for
from host_trees import Hosts, between, free_ports, hosts, lies, renames, warnings
from images import Image, Registry, bytes_below
from test_images import code, daemon_below, digest, home, made, pushed

__all__ = ["code", "home", "made", "pushed"]

BALLAST = "/opt/ballast"
SMALL = "/usr/share/doc/libc6/copyright"
LIMIT_S = 240


def deploy(cluster: Hosts, code: Path, image: str) -> None:
    command = ("--command", "./serve", "--timeout", "200s", "--memory", "64MiB")
    cluster.control.run("fn", "deploy", "read", code, *command, "--image", image).succeeded()


def start(cluster: Hosts, events: list[dict[str, Any]]) -> "subprocess.Popen[str]":
    """One function on each host, in the order of their names."""
    path = cluster.control.folder / "events"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return cluster.control.start("fn", "burst", "read", "--events", path)


def answers(cluster: Hosts, burst: "subprocess.Popen[str]") -> list[Any]:
    done = cluster.control.finish(burst, LIMIT_S).succeeded()
    return [json.loads(line).get("result") for line in done.out.splitlines()]


def read(cluster: Hosts, paths: list[str]) -> list[Any]:
    return answers(cluster, start(cluster, [{"read": path} for path in paths]))


def tree(cluster: Hosts) -> dict[str, Any]:
    """The hosts of the only tree, by their names."""
    shown = cluster.control.run("tree", "-o", "json").succeeded().out
    [found] = json.loads(shown)
    return {host["host"]: host for host in found["hosts"]}


def parents(cluster: Hosts) -> dict[str, Any]:
    """The parents of each host, one for each stripe."""
    hosts = tree(cluster).items()
    return {name: [place["parent"] for place in host["stripes"]] for name, host in hosts}


@pytest.fixture
def four(alone: Snowmelt) -> Iterator[Hosts]:
    with hosts(alone, ["h2", "h3", "h4"]) as cluster:
        yield cluster


def test_the_registry_sends_each_block_about_once(
    pushed: str, made: Image, code: Path, served: Registry, four: Hosts
) -> None:
    deploy(four, code, pushed)
    served.fetched()
    expected = digest(made.ballast)
    assert read(four, [BALLAST] * 4) == [expected] * 4
    once, sent = made.ballast.stat().st_size, served.fetched()
    # All hosts together read four times as much.
    assert once <= sent < once * 1.5, f"{sent} bytes for four hosts"
    moved = {name: host["bytes"] for name, host in tree(four).items()}
    # Of the image, with what a start reads beside that file: control has read some of it before.
    image = max(bytes["from_registry"] + bytes["from_parents"] for bytes in moved.values())
    # Each stripe has about half of the blocks, and a root of its own.
    for name, roots in {"h1": 1, "h2": 1, "h3": 0, "h4": 0}.items():
        assert (moved[name]["from_registry"] > once / 3) == (roots == 1), moved
        assert moved[name]["from_registry"] + moved[name]["from_parents"] > once, moved
        # An inner host has two children in one stripe, and none in the other.
        assert moved[name]["to_children"] < image * 1.25, moved
        assert moved[name]["failures"] == moved[name]["wrong_blocks"] == 0, moved
    assert sum(bytes["to_children"] for bytes in moved.values()) >= 4 * once - sent, moved
    for bytes in moved.values():
        assert once < bytes["here"] <= bytes["of"], moved
    for name in ("read", pushed):
        shown = four.control.run("tree", name).succeeded().out
        assert "1 of 2" in shown and "2 of 2" in shown and "registry" in shown, shown
        assert shown.count("% of ") == len(moved), shown
    four.control.run("tree", "rea").failed_with("SM-0220", "did you mean `read`?")
    four.control.run("fn", "deploy", "plain", code, "--command", "./serve").succeeded()
    other = four.control.run("tree", "plain").succeeded()
    assert pushed not in other.out and "plain" in other.err, other
    # Again, from the caches.
    assert read(four, [BALLAST] * 4) == [expected] * 4
    assert served.fetched() < once / 4


def test_a_child_goes_on_without_its_parent(
    pushed: str, made: Image, code: Path, served: Registry, four: Hosts
) -> None:
    deploy(four, code, pushed)
    assert read(four, [SMALL] * 4) == [digest(made.rootfs / SMALL[1:])] * 4
    assert parents(four) == {
        "h1": [None, "h4"],
        "h2": ["h1", None],
        "h3": ["h1", "h2"],
        "h4": ["h3", "h2"],
    }
    slow = {"read": BALLAST, "pause": 0.1}
    burst = start(four, [{"read": SMALL}] * 3 + [slow])
    cached = four.cache("h2")
    before = bytes_below(cached)
    wait_for("blocks to pass the parent", lambda: bytes_below(cached) > before + (8 << 20))
    four.kill("h2")
    assert answers(four, burst)[3] == digest(made.ballast)
    assert warnings(four.log("h4"), "blocks are read from elsewhere instead of a host")
    wait_for("a tree without the host", lambda: "h2" not in parents(four))
    assert set(parents(four)) == {"h1", "h3", "h4"}
    bytes_before = tree(four)["h4"]["bytes"]
    assert bytes_before["from_parents"] > 8 << 20 and bytes_before["failures"] > 0
    assert read(four, [BALLAST] * 3) == [digest(made.ballast)] * 3


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
def test_a_child_goes_on_without_the_daemon_of_its_parent(
    pushed: str, made: Image, code: Path, four: Hosts, sent: signal.Signals
) -> None:
    deploy(four, code, pushed)
    assert read(four, [SMALL] * 4) == [digest(made.rootfs / SMALL[1:])] * 4
    burst = start(four, [{"read": SMALL}] * 3 + [{"read": BALLAST, "pause": 0.1}])
    cached = four.cache("h2")
    before = bytes_below(cached)
    wait_for("blocks to pass the parent", lambda: bytes_below(cached) > before + (8 << 20))
    daemon = daemon_below(four.members["h2"].pid)
    assert daemon is not None
    os.kill(daemon, sent)
    try:
        assert answers(four, burst)[3] == digest(made.ballast)
        # The successor of a killed daemon has its place, and may be there before the next request.
        told = warnings(four.log("h4"), "blocks are read from elsewhere instead of a host")
        assert told or sent == signal.SIGKILL
    finally:
        if sent == signal.SIGSTOP:
            os.kill(daemon, signal.SIGCONT)
    # It is there again, or another one is.
    assert read(four, [BALLAST] * 4) == [digest(made.ballast)] * 4


def test_a_damaged_disk_of_a_parent_changes_nothing(
    pushed: str, made: Image, code: Path, served: Registry, four: Hosts
) -> None:
    deploy(four, code, pushed)
    expected = digest(made.ballast)
    assert read(four, [BALLAST] * 3 + [SMALL])[:3] == [expected] * 3
    # Both of its parents have all blocks.
    for block in four.cache("h3").rglob("*"):
        if block.is_file() and block.stat().st_size > 1 << 16:
            content = bytearray(block.read_bytes())
            content[100] ^= 1
            block.write_bytes(content)
    served.fetched()
    assert read(four, [SMALL] * 3 + [BALLAST])[3] == expected
    assert warnings(four.log("h3"), "dropping a damaged block")
    # It reads them again from its own parents.
    assert served.fetched() < made.ballast.stat().st_size / 4
    assert not warnings(four.log("h4"), "wrong block")


def test_a_host_that_lies_is_named_and_not_asked_again(
    pushed: str, made: Image, code: Path, alone: Snowmelt
) -> None:
    to_control, own, lying = free_ports(3)
    with (
        hosts(alone, []) as cluster,
        between(to_control, cluster.port, renames(own, lying)),
        between(lying, own, lies(1 << 20)),
    ):
        cluster.join("h2", own, to_control)
        [port3, port4] = free_ports(2)
        cluster.join("h3", port3)
        cluster.join("h4", port4)
        deploy(cluster, code, pushed)
        expected = digest(made.ballast)
        assert read(cluster, [BALLAST] * 4) == [expected] * 4
        # Its children read one stripe from it.
        for name in ("h3", "h4"):
            log = cluster.log(name)
            told = warnings(log, "a host sent a wrong block and is not asked again")
            assert len(told) == 1 and f"h2 (127.0.0.1:{lying})" in told[0], told
            assert tree(cluster)[name]["bytes"]["wrong_blocks"] >= 1
        # h1, the root of the other stripe, may have asked it too, before the registry.
        # Its children report it: it leaves the trees, and they get other parents.
        wait_for("trees without the host", lambda: "h2" not in parents(cluster))
        assert read(cluster, [SMALL] * 4) == [digest(made.rootfs / SMALL[1:])] * 4
        assert set(parents(cluster)) == {"h1", "h3", "h4"}
        cluster.end("h2")


def test_trees_are_turned_off_and_on_while_hosts_run(
    pushed: str, made: Image, code: Path, served: Registry, alone: Snowmelt
) -> None:
    def restart(trees: str) -> None:
        alone.run("down").succeeded()
        alone.environment["SNOWMELT_IMAGES_TREES"] = trees
        cluster.up()
        wait_for("the host to join again", lambda: '"h2"' in cluster.listed())

    def moved() -> dict[str, Any]:
        return {name: host["bytes"] for name, host in tree(cluster).items()}

    small, large = digest(made.rootfs / SMALL[1:]), digest(made.ballast)
    once = made.ballast.stat().st_size
    with hosts(alone, ["h2"]) as cluster:
        deploy(cluster, code, pushed)
        assert read(cluster, [SMALL] * 2) == [small] * 2
        assert parents(cluster) == {"h1": [None, "h2"], "h2": ["h1", None]}
        assert "trees are off" not in alone.run("tree").succeeded().err
        before = moved()["h2"]

        # The daemon of the host goes on, and has been told parents.
        restart("false")
        assert "trees are off" in alone.run("tree").succeeded().err
        served.fetched()
        assert read(cluster, [BALLAST] * 2) == [large] * 2
        sent = served.fetched()
        assert sent >= 2 * once, f"{sent} bytes for two hosts"
        assert parents(cluster) == {"h1": [None], "h2": [None]}
        for bytes in moved().values():
            assert bytes["from_registry"] > once and bytes["failures"] == 0, moved()
        assert moved()["h1"]["from_parents"] == moved()["h1"]["to_children"] == 0
        for way in ("from_parents", "to_children"):
            assert moved()["h2"][way] == before[way], moved()
        shown = alone.run("tree", pushed).succeeded()
        assert "1 of 1" in shown.out and "trees are off (images.trees)" in shown.err, shown
        assert "trees are off" in alone.run("status").succeeded().out

        restart("true")
        cluster.join("h3", free_ports(1)[0])
        served.fetched()
        assert read(cluster, [BALLAST] * 3) == [large] * 3
        assert served.fetched() < once / 4
        assert parents(cluster)["h3"] == ["h1", "h2"]
        assert moved()["h3"]["from_parents"] > once and moved()["h3"]["failures"] == 0
        assert "trees are off" not in alone.run("tree").succeeded().err
