"""Values and files for functions: `sm.broadcast` and `files=`, on one host and on the hosts of a
lab, which read them from each other."""

import gc
import hashlib
import json
import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Snowmelt, wait_for
from lab import Lab, lab
from suites import client_of

import snowmelt as sm
from common.paths import SNOWMELT
from snowmelt._client import client

HOSTS = 4
BYTES = ("from_registry", "from_parents", "to_children", "wrong_blocks")
SIZE = 24 << 20


@pytest.fixture
def platform(snowmelt: Snowmelt) -> Iterator[Snowmelt]:
    snowmelt.run("up").succeeded()
    with client_of(snowmelt.folder / "state" / "snowmelt.sock"):
        yield snowmelt
    snowmelt.run("down").succeeded()


def left() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("snowmelt-broadcast-*"))


def test_functions_have_the_value_that_was_broadcast(platform: Snowmelt) -> None:
    weights = sm.broadcast({"factor": 10, "words": ["a", "b"]})
    offset = sm.broadcast(5)
    weights.value["factor"] = 1000  # As it was sent, it is still 10.

    def scaled(n: int) -> int:
        return int(n * weights.value["factor"] + offset.value)

    assert sm.map(scaled, range(40), workers=2) == [10 * n + 5 for n in range(40)]
    assert list(sm.burst(scaled, 3)) == [5, 15, 25]
    assert sm.function()(scaled).remote(4) == 45
    assert scaled(1) == 1005

    @sm.udf
    def score(n: int) -> int:
        return int(n * weights.value["factor"])

    table = pa.table({"n": pa.array([1, 2, 3], pa.int64())})
    rows = sm.sql("select score(n) s from t order by 1", udfs=[score], t=table).rows()
    assert [row[0] for row in rows] == [10, 20, 30]
    assert repr(weights).startswith("<broadcast of ")


def test_the_file_of_a_broadcast_goes_with_it(machine: None) -> None:
    before = left()
    value = sm.broadcast([1, 2, 3])
    assert len(left() - before) == 1
    del value
    gc.collect()
    assert left() == before


def test_large_buffers_are_mapped_and_cannot_be_changed(platform: Snowmelt) -> None:
    content = os.urandom(3 << 20)
    value = sm.broadcast({"a": pickle.PickleBuffer(content), "b": pickle.PickleBuffer(b"short")})

    def look(_: int) -> tuple[bool, str, bytes, bool]:
        a = value.value["a"]
        with open("/proc/self/maps") as maps:
            is_mapped = ".broadcast/" in maps.read()
        return a.readonly, hashlib.sha256(a).hexdigest(), bytes(value.value["b"]), is_mapped

    expected = (True, hashlib.sha256(content).hexdigest(), b"short", True)
    assert sm.map(look, range(4), results="pickle") == [expected] * 4


def test_what_cannot_be_broadcast_is_said_where_it_is_asked_for(platform: Snowmelt) -> None:
    with pytest.raises(sm.Error, match="a lock cannot be broadcast"):
        sm.broadcast(threading.Lock())
    value = sm.broadcast([1])
    with pytest.raises(TypeError, match="sent with the code of a function"):
        pickle.dumps(value)
    with pytest.raises(sm.MapError, match="sent with the code of a function"):
        sm.map(lambda it: it.value, [value])


def test_deployed_functions_keep_their_files_when_the_server_is_killed(
    alone: Snowmelt, tmp_path: Path
) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "list.txt").write_text("zero one two")
    code = tmp_path / "f.py"
    code.write_text(
        "import os\nimport snowmelt as sm\n"
        "def handler(n):\n    return open(sm.file('words/list.txt')).read().split()[n]\n"
    )
    alone.run("up").succeeded()
    alone.run("fn", "deploy", "word", code, "--file", tmp_path / "words").succeeded()
    assert alone.run("fn", "call", "word", "-d", "1").succeeded().out.strip() == '"one"'
    missing = alone.run("fn", "deploy", "word", code, "--file", tmp_path / "none")
    missing.failed_with("SM-0230", "none")
    server = json.loads(alone.run("status", "-o", "json").succeeded().out)["pid"]
    os.kill(server, signal.SIGKILL)
    wait_for("its end", lambda: not Path(f"/proc/{server}").exists())
    alone.run("up").succeeded()
    assert alone.run("fn", "call", "word", "-d", "2").succeeded().out.strip() == '"two"'
    with client_of(alone.folder / "state" / "snowmelt.sock"):
        here = sm.deploy("other", code, files={"words/list.txt": tmp_path / "words" / "list.txt"})
        assert here.remote(0) == "zero"
    alone.run("down").succeeded()


@pytest.fixture
def several(alone: Snowmelt) -> Iterator[Lab]:
    options = ("--control-only", "--link", "200mbit", "--memory", "1GiB")
    with lab(alone, 1 + HOSTS, *options) as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


def states(made: Lab) -> dict[str, str]:
    return {host["name"]: host["state"] for host in json.loads(made.client("hosts", "-o", "json"))}


def trees(made: Lab) -> dict[str, dict[str, Any]]:
    """For each tree that there is, its hosts by their names."""
    listed = json.loads(made.client("tree", "-o", "json"))
    return {tree["image"]: {host["host"]: host for host in tree["hosts"]} for tree in listed}


def test_hosts_read_a_broadcast_from_each_other(several: Lab) -> None:
    content = os.urandom(SIZE)
    value = sm.broadcast(content)

    def look(_: int) -> str:
        return hashlib.sha256(value.value).hexdigest()

    expected = hashlib.sha256(content).hexdigest()
    hosts = set(states(several))
    burst = sm.burst(look, 2 * HOSTS, memory="128MiB")
    assert list(burst) == [expected] * (2 * HOSTS) and len(burst.hosts) == HOSTS
    # Control sends it about once; the hosts send it on.
    [(name, tree)] = trees(several).items()
    assert name.startswith("file:") and set(tree) == hosts - {"host-1"}
    total = {what: sum(it["bytes"][what] for it in tree.values()) for what in BYTES}
    assert SIZE <= total["from_registry"] < 1.1 * SIZE, total
    assert total["from_parents"] + total["from_registry"] >= HOSTS * SIZE
    assert total["to_children"] == total["from_parents"]
    assert total["wrong_blocks"] == 0
    # Another function that has it: nothing is sent again.

    def length(_: int) -> int:
        return len(value.value)

    assert set(sm.map(length, range(20), workers=8, memory="64MiB")) == {SIZE}
    again = trees(several)[name]
    assert sum(it["bytes"]["from_registry"] for it in again.values()) == total["from_registry"]
    assert sum(it["bytes"]["from_parents"] for it in again.values()) == total["from_parents"]


def test_a_host_that_is_lost_or_lies_changes_no_broadcast(several: Lab) -> None:
    first = sm.broadcast(os.urandom(1 << 20))
    assert len(sm.burst(lambda _: len(first.value), HOSTS, memory="64MiB")) == HOSTS
    [tree] = trees(several).values()
    inner = next(host for host, it in tree.items() if it["stripes"][0]["parent"] is None)
    several.fail(inner, "corrupt")
    content = os.urandom(SIZE)
    second = sm.broadcast(content)
    burst = sm.burst(
        lambda _: hashlib.sha256(second.value).hexdigest(), HOSTS, memory="64MiB", hosts=HOSTS
    )
    assert set(burst) == {hashlib.sha256(content).hexdigest()}
    wait_for(
        "trees without the host", lambda: all(inner not in it for it in trees(several).values())
    )
    several.heal(inner)
    several.fail(inner, "kill")
    wait_for("the host to be lost", lambda: inner not in states(several))
    third = sm.broadcast(content[: SIZE // 2])
    burst = sm.burst(lambda _: len(third.value), HOSTS - 1, memory="64MiB")
    assert set(burst) == {SIZE // 2}
    several.heal(inner)


def test_calls_go_elsewhere_if_a_host_cannot_prepare_the_function(
    several: Lab, tmp_path: Path
) -> None:
    broken = "host-2"
    [state] = (several.snowmelt.folder / "state" / "labs").glob(f"*/{broken}")
    (state / "files").mkdir(exist_ok=True)
    # It can keep no file of another host.
    (state / "files" / "received").write_text("")
    (tmp_path / "word").write_text("here")
    code = tmp_path / "f.py"
    code.write_text(
        "import time\nimport snowmelt as sm\n"
        "def handler(n):\n    time.sleep(0.3)\n    return open(sm.file('word')).read()\n"
    )
    options = ("--file", tmp_path / "word", "--memory", "64MiB", "--instances", "40")
    # The scheduler knows of the hosts a second later.
    deploying = ("run", "--", SNOWMELT, "fn", "deploy", "f", code, *options)
    wait_for("the hosts to be used", lambda: not several.command(*deploying).code)
    with ThreadPoolExecutor(12) as pool:
        path = "/v1/functions/f/invocations"
        called = list(pool.map(lambda n: client().call("POST", path, {"event": n}), range(36)))
    assert [one["result"] for one in called] == ["here"] * 36
    hosts = {one["host"] for one in called}
    assert broken not in hosts and len(hosts) > 1, hosts
