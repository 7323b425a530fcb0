"""Hosts that get no new work: what runs there goes on, and a restarted control knows them."""

import json
from pathlib import Path
from typing import Any

from conftest import Snowmelt, wait_for
from host_trees import Hosts, hosts
from images import Image
from test_image_trees import BALLAST, SMALL, answers, deploy, parents, read, start
from test_images import code, digest, home, made, pushed

__all__ = ["code", "home", "made", "pushed"]


def listed(cluster: Hosts) -> dict[str, dict[str, Any]]:
    return {host["name"]: host for host in json.loads(cluster.listed())}


def states(cluster: Hosts) -> dict[str, str]:
    return {name: host["state"] for name, host in listed(cluster).items()}


def ranks(cluster: Hosts) -> dict[str, int]:
    return {name: host["facts"]["ranks"] for name, host in listed(cluster).items()}


def test_a_drained_host_finishes_its_work_and_gets_no_other(
    pushed: str, made: Image, code: Path, alone: Snowmelt
) -> None:
    with hosts(alone, ["h2", "h3"]) as cluster:
        deploy(cluster, code, pushed)
        # The others have no functions yet.
        assert states(cluster) == {"h1": "active", "h2": "free", "h3": "free"}
        slow = {"read": BALLAST, "pause": 0.2}
        burst = start(cluster, [slow] * 3)
        wait_for("all hosts to run", lambda: set(ranks(cluster).values()) == {1})
        cluster.control.run("hosts", "drain", "h2").succeeded()
        assert states(cluster)["h2"] == "draining"
        wait_for("trees without the host", lambda: set(parents(cluster)) == {"h1", "h3"})
        # Its own function goes on.
        assert answers(cluster, burst) == [digest(made.ballast)] * 3
        wait_for("the host to be drained", lambda: states(cluster)["h2"] == "drained")

        burst = start(cluster, [slow] * 3)
        wait_for("two hosts to run", lambda: sum(ranks(cluster).values()) == 3)
        assert ranks(cluster)["h2"] == 0
        assert answers(cluster, burst) == [digest(made.ballast)] * 3
        assert set(parents(cluster)) == {"h1", "h3"}

        cluster.control.run("hosts", "drain", "h9").failed_with("SM-0713", "h9")

        cluster.control.run("down").succeeded()
        cluster.up()
        wait_for("all hosts to come back", lambda: len(listed(cluster)) == 3)
        assert states(cluster) == {"h1": "active", "h2": "drained", "h3": "free"}
        cluster.control.run("hosts", "undrain", "h2").succeeded()
        assert states(cluster)["h2"] == "free"
        assert read(cluster, [SMALL] * 3) == [digest(made.rootfs / SMALL[1:])] * 3
        assert set(parents(cluster)) == {"h1", "h2", "h3"}
