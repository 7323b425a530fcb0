"""Joins whose build side every task reads whole, on several hosts: each gets it once, most of them
from others that have got it."""

import base64
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt, wait_for
from lab import Lab, lab
from suites import client_of
from test_query_hosts import CONTROL, Running, answer, pids, wait_until_clean

import snowmelt as sm

HOSTS = 6
NAMES = [f"host-{number}" for number in range(1, HOSTS + 1)]
WORKERS = 4 * HOSTS
KEYS = 50_000
# Random text is as long in an exchange as it is here.
TAG_BYTES = 96
BUILD_BYTES = KEYS * TAG_BYTES
FILES, ROWS = 16, 200_000

# A host with such a function has no room for a worker.
ROOM = {"SNOWMELT_SANDBOXES_MEMORY": "3GiB", "SNOWMELT_SANDBOXES_OVERCOMMIT": "1"}
FILLING = """
    import time
    sm.burst(lambda rank: time.sleep(600), 2, memory="2500MiB", timeout="15m", progress=False)
"""


@pytest.fixture(scope="module")
def join(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A query that joins a large table with one that is small enough to be read by every task."""
    folder = tmp_path_factory.mktemp("join")
    texts = base64.b64encode(os.urandom(KEYS * TAG_BYTES * 3 // 4)).decode()
    tags = [texts[at : at + TAG_BYTES] for at in range(0, len(texts), TAG_BYTES)]
    names = pa.table({"k": pa.array(range(KEYS), pa.int64()), "tag": tags})
    pq.write_table(names, folder / "names.parquet")
    made = random.Random(1)
    (folder / "facts").mkdir()
    for part in range(FILES):
        keys = pa.array([made.randrange(KEYS) for _ in range(ROWS)], pa.int64())
        values = pa.array([made.getrandbits(62) for _ in range(ROWS)], pa.int64())
        pq.write_table(pa.table({"k": keys, "v": values}), folder / "facts" / f"{part}.parquet")
    return (
        "select substr(tag, 1, 1) t, count(*) c, sum(v % 1000) s, min(tag) m"
        f" from '{folder}/facts/*.parquet' f join"
        f" (select k, tag from '{folder}/names.parquet' where tag <> 'none') n on f.k = n.k"
        " group by 1 order by 1"
    )


@pytest.fixture
def slow(alone: Snowmelt, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """So slow that the copies of a build side take some seconds."""
    alone.environment |= getattr(request, "param", {})
    with lab(alone, HOSTS, "--link", "20mbit", "--memory", "3GiB") as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


def placed(query: sm.Query, stage: int) -> set[str]:
    """The hosts that ran tasks of a stage."""
    lanes = (query.profile or {})["lanes"]
    return {lane["host"] for lane in lanes if "worker" in lane["name"] and lane["stage"] == stage}


class Links:
    """Bytes that each host has received and sent over its link since this was made."""

    def __init__(self, made: Lab) -> None:
        self._pids = pids(made)
        self._before = {host: self._now(host) for host in self._pids}

    def _now(self, host: str) -> tuple[int, int]:
        shown = Path(f"/proc/{self._pids[host]}/net/dev").read_text()
        [line] = [line for line in shown.splitlines() if line.strip().startswith("eth0:")]
        columns = line.partition(":")[2].split()
        return int(columns[0]), int(columns[8])

    def received(self, host: str) -> int:
        return self._now(host)[0] - self._before[host][0]

    def sent(self, host: str) -> int:
        return self._now(host)[1] - self._before[host][1]


def test_a_build_side_goes_to_each_host_once_and_is_passed_on(slow: Lab, join: str) -> None:
    rows = answer(join, workers=1)
    plan = "\n".join(row["plan"] for row in answer(f"explain {join}", workers=WORKERS))
    assert "CollectLeft" in plan, plan

    def passed_on() -> dict[str, int] | None:
        """Bytes that each host has sent for one query. None unless all hosts had tasks that join,
        and no host was so busy that others did not wait for it."""
        links = Links(slow)
        query = sm.sql(join, workers=WORKERS, progress=False)
        assert query.collect().to_pylist() == rows
        sent = {name: links.sent(name) for name in NAMES}
        # All hosts but the one that made it get it. Without copies each of their tasks does.
        others = HOSTS - 1
        if placed(query, 1) != set(NAMES):
            return None
        assert others * BUILD_BYTES < sum(sent.values()) < 2 * others * BUILD_BYTES, sent
        # Two copies and a little more. Without a tree its maker sends five.
        return sent if max(sent.values()) < 2.5 * sum(sent.values()) / others else None

    sent = wait_for("a build side that hosts pass on", passed_on, 180)
    assert sum(bytes_sent > BUILD_BYTES for bytes_sent in sent.values()) > 1, sent
    wait_until_clean(slow)


@pytest.mark.parametrize("how", ["kill", "freeze", "partition"])
def test_a_host_that_is_lost_while_it_passes_a_build_side_on_changes_no_answer(
    slow: Lab, join: str, how: str
) -> None:
    rows = answer(join, workers=1)
    links = Links(slow)
    running = Running(join, workers=WORKERS)

    def parent() -> str | None:
        """A host that receives the build side and sends it to others."""
        for name in set(NAMES) - {CONTROL}:
            if links.received(name) > BUILD_BYTES / 4 and links.sent(name) > BUILD_BYTES / 4:
                return name
        return None

    lost = wait_for("a host that passes the build side on", parent)
    assert running.runs()
    slow.fail(lost, how)
    assert running.rows() == rows
    slow.heal(lost)
    wait_until_clean(slow)


@pytest.mark.parametrize("slow", [ROOM], indirect=True, ids=["three GiB"])
def test_hosts_that_have_no_room_get_no_build_side_and_keep_nobody_waiting(
    slow: Lab, join: str
) -> None:
    rows = answer(join, workers=1)
    # The query needs control's host.
    slow.client("hosts", "drain", CONTROL)
    burst = slow.start(FILLING)
    [running] = wait_for(
        "two full hosts", lambda: [it for it in slow.bursts() if it["state"] == "running"], 120
    )
    slow.client("hosts", "undrain", CONTROL)
    full = set(running["hosts"])
    assert len(full) == 2 and CONTROL not in full

    links = Links(slow)
    query = sm.sql(join, workers=WORKERS, progress=False)
    assert query.collect().to_pylist() == rows
    assert not placed(query, 1) & full
    received = {name: links.received(name) for name in full}
    assert max(received.values()) < BUILD_BYTES / 2, received
    slow.client("burst", "cancel", running["job"])
    burst.communicate(timeout=60)
    wait_until_clean(slow)
