"""Bursts that wait for room: behind other bursts and behind calls, until they are cancelled, until
nobody waits for them, and not at all when there will never be room."""

import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for
from lab import Lab, lab
from suites import client_of
from test_function_hosts import call, deploy, wait_for_hosts

import snowmelt as sm

# A rank of this size has a host of 1 GiB for itself.
RANK = "600MiB"

TIMED = """
    import time

    def timed(rank):
        begun = time.time()
        time.sleep({seconds})
        return rank * 3, begun, time.time()

    print(json.dumps(sm.burst(timed, {ranks}, memory="{rank}", progress=False)))
"""
ENDLESS = """
    import time
    sm.burst(lambda rank: time.sleep(600), {ranks}, memory="{rank}", timeout="15m", progress=False)
"""
WORD = '{"word": "snow"}'
SHOWN = """
    import sys
    sys.stderr = open({said!r}, "w")
    print(json.dumps(sm.burst(lambda rank: [rank * 3], 2, memory="{rank}", progress=True)))
"""


@pytest.fixture
def three(alone: Snowmelt) -> Iterator[Lab]:
    with lab(alone, 3, "--memory", "1GiB") as made:
        [socket] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(socket):
            yield made


def timed(ranks: int, seconds: float = 0) -> str:
    return TIMED.format(ranks=ranks, seconds=seconds, rank=RANK)


def endless(ranks: int) -> str:
    return ENDLESS.format(ranks=ranks, rank=RANK)


def in_state(made: Lab, state: str) -> list[dict[str, Any]]:
    return [burst for burst in made.bursts() if burst["state"] == state]


def until_one(made: Lab, state: str) -> dict[str, Any]:
    found = wait_for(f"a burst that is {state}", lambda: in_state(made, state), seconds=120)
    assert len(found) == 1, found
    return dict(found[0])


def answer(program: "subprocess.Popen[str]") -> list[Any]:
    out, said = program.communicate(timeout=240)
    assert program.returncode == 0, said
    return list(json.loads(out))


def test_bursts_that_do_not_fit_beside_each_other_run_one_after_the_other(three: Lab) -> None:
    programs = [three.start(timed(3, seconds=2)) for _ in range(3)]
    answers = [answer(program) for program in programs]
    spans = []
    for ranks in answers:
        assert [rank[0] for rank in ranks] == [0, 3, 6]
        spans.append((min(rank[1] for rank in ranks), max(rank[2] for rank in ranks)))
    spans.sort()
    assert all(end <= begun for (_, end), (begun, _) in itertools.pairwise(spans)), spans
    assert in_state(three, "waiting") == []


def test_a_burst_waits_until_another_one_is_cancelled_and_others_pass_it(
    three: Lab, tmp_path: Path
) -> None:
    first = three.start(endless(2))
    running = until_one(three, "running")
    said = tmp_path / "said"
    second = three.start(SHOWN.format(said=str(said), rank=RANK))
    waiting = until_one(three, "waiting")
    assert waiting["hosts"] == [] and waiting["ended"] == 0
    # One host is free.
    assert waiting["waits_for"]["hosts"] == 3
    assert waiting["waits_for"]["needed"] == 2 * 600 << 20
    assert waiting["waits_for"]["free"] < 2 * 600 << 20
    assert "waiting" in three.client("burst", "ls")
    # Both who runs it and who waits for it see that.
    shown = re.compile(r"waits for room: 1\.2 GiB needed, \S+ [MG]iB free on 3 hosts")
    wait_for("its program to show it", lambda: shown.search(said.read_text()))
    watch = three.client_start("--progress", "plain", "burst", "wait", waiting["job"])
    assert watch.stderr is not None and any(shown.search(line) for line in watch.stderr)
    # What fits passes it, as it has not waited for long; or comes behind it, when it has.
    third = three.start(timed(1))
    three.client("burst", "cancel", running["job"])
    assert "SM-0710" in three.refused(first)
    for program, ranks in ((second, 2), (third, 1)):
        assert [rank[0] for rank in answer(program)] == [rank * 3 for rank in range(ranks)]
    watch.communicate(timeout=60)
    assert watch.returncode == 0


def test_a_burst_for_which_there_will_never_be_room_is_refused_at_once(three: Lab) -> None:
    three.start(endless(3))
    running = until_one(three, "running")
    said = three.refused(three.start(timed(4)))
    assert "SM-0701" in said and "4 functions of 600 MiB need 2.3 GiB, and 3 hosts have" in said
    assert "after" not in said.split("to give")[1].splitlines()[0]
    three.client("burst", "cancel", running["job"])


def test_a_burst_that_is_cancelled_or_left_while_it_waits_leaves_the_queue(
    three: Lab, tmp_path: Path
) -> None:
    deploy(three, tmp_path, "--memory", RANK)
    running = three.start(endless(3))
    blocks = until_one(three, "running")["job"]

    cancelled = three.client("fn", "burst", "f", "-n", "3", "--data", "{}", "--async").strip()
    assert until_one(three, "waiting")["job"] == cancelled
    three.client("burst", "cancel", cancelled)
    assert [burst["job"] for burst in three.bursts()] == [blocks]

    left = three.client_start("fn", "burst", "f", "-n", "3", "--data", "{}", "--unattended", "1s")
    abandoned = until_one(three, "waiting")["job"]
    left.kill()
    left.communicate()
    failed = until_one(three, "failed")
    assert failed["job"] == abandoned and failed["error"]["code"] == "SM-0708"

    # Nothing is in the way of the next one.
    three.client("burst", "cancel", blocks)
    running.communicate(timeout=60)
    assert [rank[0] for rank in three.python(timed(3))] == [0, 3, 6]


def test_a_burst_waits_for_calls_and_calls_wait_for_a_burst(three: Lab, tmp_path: Path) -> None:
    # An instance reserves an eighth of its limit, and what is left is less than a rank.
    deploy(three, tmp_path, "--memory", "960MiB", "--timeout", "200s")
    wait_for_hosts(three, 3)
    with ThreadPoolExecutor(11) as pool:
        calls = [pool.submit(call, {"word": word, "sleep": 15}) for word in range(9)]
        burst = pool.submit(
            lambda: sm.burst(lambda rank: rank, 3, memory="1000MiB", progress=False)
        )
        until_one(three, "waiting")
        assert {one.result()["result"]["word"] for one in calls} == set(range(9))
        assert list(burst.result(timeout=200)) == [0, 1, 2]
        # Its whole memory is theirs: a call runs when they are over.
        blocks = three.start(ENDLESS.format(ranks=3, rank="1000MiB"))
        job = until_one(three, "running")["job"]
        late = pool.submit(call, {"word": "late"})
        with pytest.raises(TimeoutError):
            late.result(timeout=5)
        three.client("burst", "cancel", job)
        assert late.result()["result"]["word"] == "late"
        blocks.communicate(timeout=60)


def test_a_burst_of_an_earlier_control_still_has_its_memory(alone: Snowmelt) -> None:
    with lab(alone, 3, "--memory", "1GiB", "--control-only") as made:
        first = made.start(endless(2))
        job = until_one(made, "running")["job"]
        made.fail("host-1")
        made.heal("host-1")
        wait_for("the hosts to join again", lambda: len(made.ranks()) == 3)
        assert until_one(made, "running")["job"] == job
        second = made.start(timed(2))
        until_one(made, "waiting")
        made.client("burst", "cancel", job)
        first.communicate(timeout=60)
        assert [rank[0] for rank in answer(second)] == [0, 3]


@pytest.mark.alone
def test_a_burst_that_nobody_waits_for_survives_a_control_that_is_killed_while_it_waits(
    alone: Snowmelt, tmp_path: Path
) -> None:
    with lab(alone, 3, "--memory", "1GiB", "--control-only") as made:
        deploy(made, tmp_path, "--memory", RANK)
        first = made.start(endless(2))
        blocks = until_one(made, "running")["job"]
        accepted = made.client("fn", "burst", "f", "-n", "2", "--data", WORD, "--async").strip()
        before = until_one(made, "waiting")
        assert before["job"] == accepted
        made.fail("host-1")
        made.heal("host-1")
        wait_for("the hosts to join again", lambda: len(made.ranks()) == 3)
        after = until_one(made, "waiting")
        same = ("job", "function", "functions", "since_ms")
        assert [after[key] for key in same] == [before[key] for key in same]
        made.client("burst", "cancel", blocks)
        first.communicate(timeout=60)
        answers = made.client("burst", "wait", accepted).splitlines()
        assert [json.loads(one)["result"]["word"] for one in answers] == ["snow", "snow"]
        # It was called once, and its request is gone: the next control has its results only.
        made.fail("host-1")
        made.heal("host-1")
        wait_for("the hosts to join again", lambda: len(made.ranks()) == 3)
        assert [burst["state"] for burst in made.bursts()] == ["ended"]


def test_a_burst_that_nobody_waits_for_survives_a_control_that_is_killed_while_it_starts(
    alone: Snowmelt, tmp_path: Path
) -> None:
    with lab(alone, 3, "--memory", "1GiB", "--control-only") as made:
        deploy(made, tmp_path, text="import time\ntime.sleep(6)\ndef handler(event): return 7\n")
        accepted = made.client("fn", "burst", "f", "-n", "2", "--data", "{}", "--async").strip()
        assert until_one(made, "starting")["job"] == accepted
        made.fail("host-1")
        made.heal("host-1")
        answers = made.client("burst", "wait", accepted).splitlines()
        assert [json.loads(one)["result"] for one in answers] == [7, 7]


@pytest.mark.parametrize(("wait", "said"), [("0", "to give\n"), ("2s", "to give after 2s")])
def test_one_host_has_a_queue_as_well_and_a_burst_waits_as_long_as_is_set(
    alone: Snowmelt, wait: str, said: str
) -> None:
    alone.environment |= {"SNOWMELT_HOST_MEMORY": "1GiB", "SNOWMELT_CLUSTER_BURST_WAIT": wait}
    alone.run("up").succeeded()
    try:
        with client_of(alone.folder / "state" / "snowmelt.sock"), ThreadPoolExecutor(1) as pool:
            options: dict[str, Any] = {"memory": RANK, "progress": False}
            job = sm.new_job()
            first = pool.submit(lambda: sm.burst(lambda _: time.sleep(600), 1, job=job, **options))

            def runs() -> bool:
                listed = json.loads(alone.run("burst", "ls", "-o", "json").succeeded().out)
                return [burst["state"] for burst in listed] == ["running"]

            wait_for("the first", runs)
            with pytest.raises(sm.Error) as refused:
                sm.burst(abs, 1, **options)
            assert refused.value.code == "SM-0701"
            assert said in f"{refused.value}\n", refused.value
            alone.run("burst", "cancel", job).succeeded()
            with pytest.raises(sm.Error):
                first.result(timeout=60)
            assert list(sm.burst(abs, 1, **options)) == [0]
    finally:
        alone.run("down")
