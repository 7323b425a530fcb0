"""Joins whose build side every task reads whole, on several hosts: each host gets it once."""

import base64
import os
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Snowmelt, wait_for
from lab import Lab, lab
from suites import client_of
from test_query_hosts import CONTROL, NAMES, Running, answer, outputs, wait_until_clean

import snowmelt as sm

HOSTS = len(NAMES)
WORKERS = 4 * HOSTS
KEYS = 50_000
# Random text is as long in an exchange as it is here.
TAG_BYTES = 96
BUILD_BYTES = KEYS * TAG_BYTES
FILES, ROWS = 16, 200_000


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
def slow(alone: Snowmelt) -> Iterator[Lab]:
    """So slow that the copies of a build side take some seconds."""
    with lab(alone, HOSTS, "--link", "20mbit", "--memory", "2GiB") as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


def test_a_build_side_goes_to_each_host_once(slow: Lab, join: str) -> None:
    rows = answer(join, workers=1)
    plan = "\n".join(row["plan"] for row in answer(f"explain {join}", workers=WORKERS))
    assert "CollectLeft" in plan, plan

    def sent_by_each() -> dict[str, int] | None:
        """Bytes that each host has sent for one query, if all hosts had tasks that join."""
        before = {name: slow.sent(name) for name in NAMES}
        query = sm.sql(join, workers=WORKERS, progress=False)
        assert query.collect().to_pylist() == rows
        lanes = [lane for lane in (query.profile or {})["lanes"] if "worker" in lane["name"]]
        if {lane["host"] for lane in lanes if lane["stage"] == 1} != set(NAMES):
            return None
        return {name: slow.sent(name) - before[name] for name in NAMES}

    sent = wait_for("tasks that join on all hosts", sent_by_each, 120)
    # All hosts but the one that made it get it. Without copies each of their tasks does.
    others = HOSTS - 1
    assert others * BUILD_BYTES < sum(sent.values()) < 2 * others * BUILD_BYTES, sent
    wait_until_clean(slow)


@pytest.mark.parametrize("how", ["kill", "partition"])
def test_a_host_that_is_lost_while_it_passes_a_build_side_on_changes_no_answer(
    slow: Lab, join: str, how: str
) -> None:
    rows = answer(join, workers=1)
    running = Running(join, workers=WORKERS)

    def member() -> str | None:
        """A host other than control's, once several have the build side or begin to copy it."""
        having: dict[str, Any] = dict(outputs(slow))
        others = sorted(having.keys() - {CONTROL})
        return others[0] if len(others) > 1 else None

    lost = wait_for("copies on several hosts", member)
    assert running.runs()
    slow.fail(lost, how)
    assert running.rows() == rows
    slow.heal(lost)
    wait_until_clean(slow)
