"""Files of functions in queries on several hosts, which read them from each other."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for
from host_trees import Hosts, hosts
from suites import client_of

import snowmelt as sm

OTHERS = ["h2", "h3", "h4"]
NAMES = {"h1", *OTHERS}
SIZE = 24 << 20
# Files of less than 4 KiB would share a task.
ROWS, FILES = 300, 8
# So slow that all hosts have a part while the function runs on control's own.
FUNCTION = """import hashlib
import time

import snowmelt as sm


@sm.udf
def tagged(n: int) -> str:
    time.sleep(0.02)
    return DIGEST


"""
WITH_FILE = "DIGEST = hashlib.sha256(open('model.bin', 'rb').read()).hexdigest()\n"


@pytest.fixture
def four(alone: Snowmelt) -> Iterator[Hosts]:
    """Each sends at most so much a second to others, control's own too."""
    alone.environment["SNOWMELT_IMAGES_SHARE_LINK"] = "4MiB"
    with (
        hosts(alone, OTHERS) as cluster,
        client_of(alone.folder / "state" / "snowmelt.sock"),
    ):
        yield cluster


class Case:
    """A function with a file, and a query of it with tasks for all hosts."""

    def __init__(self, cluster: Hosts, folder: Path) -> None:
        self.cluster = cluster
        self.model = folder / "model.bin"
        self.content = os.urandom(SIZE)
        self.model.write_bytes(self.content)
        self.digest = hashlib.sha256(self.content).hexdigest()
        self.plain, self.code = folder / "plain.py", folder / "udfs.py"
        self.plain.write_text(FUNCTION + "DIGEST = 'plain'\n")
        self.code.write_text(FUNCTION + WITH_FILE)
        numbers = folder / "n"
        numbers.mkdir()
        for part in range(FILES):
            lines = map(str, range(10**15, 10**15 + ROWS))
            (numbers / f"{part}.csv").write_text("n\n" + "\n".join(lines))
        self.sql = f"select tagged(n) w, count(*) c from '{numbers}' group by 1"

    def add(self, *options: object) -> None:
        self.cluster.control.run("udf", "add", *options).succeeded()

    def query(self) -> "sm.Query":
        return sm.sql(self.sql, workers=8, progress=False)

    def ran_on(self, tag: str) -> set[str]:
        """The hosts that ran the function in a query, whose answer is right."""
        query = self.query()
        assert query.collect().to_pylist() == [{"w": tag, "c": ROWS * FILES}]
        lanes = (query.profile or {})["lanes"]
        return {lane["host"] for lane in lanes if "tagged" in lane["name"]}

    def installed(self) -> None:
        """Waits until all hosts have the packages of functions."""
        self.add(self.plain)
        wait_for("the function on all hosts", lambda: self.ran_on("plain") == NAMES, 240)

    def tree(self) -> dict[str, dict[str, Any]]:
        """What each host has read of the file and sent on."""
        listed = json.loads(self.cluster.control.run("tree", "-o", "json").succeeded().out)
        trees = [tree for tree in listed if tree["image"] == f"file:{self.digest}"]
        found = [host for tree in trees for host in tree["hosts"] if host["bytes"]]
        return {host["host"]: host["bytes"] for host in found}

    def whole(self, host: str) -> bool:
        received = self.cluster.control.folder / host / "files" / "received" / "default" / "blobs"
        return (received / self.digest).is_file()


def total(tree: dict[str, dict[str, Any]], what: str) -> int:
    return sum(int(read[what]) for read in tree.values())


def test_hosts_read_files_of_functions_in_queries_from_each_other(
    four: Hosts, tmp_path: Path
) -> None:
    case = Case(four, tmp_path)
    case.installed()
    case.add(case.code, "--file", case.model)
    wait_for("the function on all hosts", lambda: case.ran_on(case.digest) == NAMES, 120)
    tree = case.tree()
    # Control has the file and is no member.
    assert set(tree) == set(OTHERS) and all(map(case.whole, OTHERS))
    # Control sends it about once, although it opens one session after another.
    assert SIZE <= total(tree, "from_registry") < 1.1 * SIZE, tree
    assert total(tree, "from_registry") + total(tree, "from_parents") >= len(OTHERS) * SIZE
    assert total(tree, "to_children") == total(tree, "from_parents")
    # The next query that has it sends nothing.
    assert case.ran_on(case.digest)
    assert case.tree() == tree


def test_a_host_that_is_killed_while_it_reads_a_file_fails_no_query(
    four: Hosts, tmp_path: Path
) -> None:
    case = Case(four, tmp_path)
    case.installed()
    case.add(case.code, "--file", case.model)
    rows: list[Any] = []
    query = case.query()
    running = threading.Thread(target=lambda: rows.extend(query.collect().to_pylist()))
    running.start()

    def sender() -> str | None:
        """A host that has sent blocks to another one, and does not have all of them."""
        sending = [host for host, read in case.tree().items() if read["to_children"]]
        return next((host for host in sending if not case.whole(host)), None)

    four.kill(lost := wait_for("a host that sends what it has so far", sender))
    running.join(180)
    assert rows == [{"w": case.digest, "c": ROWS * FILES}]
    left = set(OTHERS) - {lost}
    wait_for("the file on the other hosts", lambda: all(map(case.whole, left)))
    wait_for("a tree without the host", lambda: set(case.tree()) == left)
