"""Ctrl-C and kill -9 of each process at any time: the same answer or an error, and clean-up."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import CLEAN_WITHIN_S, Snowmelt, descendants, process_below, wait_for

from common.machine_state import MachineState

SLOW = """import time

@sm.udf
def slow(x: int) -> int:
    time.sleep(0.004)
    return x
"""


@pytest.fixture
def start_slow(
    snowmelt: Snowmelt, data: Path, udf_file: Callable[[str], Path]
) -> Callable[[], subprocess.Popen[str]]:
    """A query of some seconds: 1,500 rows at 4 ms on two workers."""

    def start() -> subprocess.Popen[str]:
        sql = f"select sum(slow(c_custkey)) as s from '{data / 'customer'}'"
        return snowmelt.start(
            "sql", sql, "-o", "json", "--udf", udf_file(SLOW), "--workers", 2, "--embedded"
        )

    return start


ANSWER = '{"s":1125750}'


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seed", range(6))
def test_a_signal_at_any_moment(
    snowmelt: Snowmelt,
    start_slow: Callable[[], subprocess.Popen[str]],
    seed: int,
    sent: signal.Signals,
) -> None:
    before = MachineState()
    process = start_slow()
    # From before the start of the spawner to the middle of the query.
    time.sleep(random.Random(f"{seed} {sent}").uniform(0.0, 2.5) * seed / 5)
    process.send_signal(sent)
    moment = time.monotonic()
    done = snowmelt.finish(process, timeout=30)
    assert time.monotonic() - moment < CLEAN_WITHIN_S
    assert done.code in (0, 128 + sent, -sent), done
    assert not before.remaining_within(CLEAN_WITHIN_S)


def test_a_second_ctrl_c_does_not_skip_the_clean_up(
    snowmelt: Snowmelt, start_slow: Callable[[], subprocess.Popen[str]]
) -> None:
    before = MachineState()
    process = start_slow()
    process_below(process.pid, "snowmelt-query")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    assert snowmelt.finish(process, timeout=30).code in (130, -signal.SIGINT)
    assert not before.remaining_within(CLEAN_WITHIN_S)


def drivers_and_workers(pid: int) -> list[int]:
    """In the order in which they were started: the driver of a query is the first."""
    return sorted(p for p, line in descendants(pid).items() if "snowmelt-query" in line)


def workers(pid: int) -> list[int]:
    return drivers_and_workers(pid)[1:]


def test_kill_of_a_worker_gives_the_same_answer(
    snowmelt: Snowmelt, start_slow: Callable[[], subprocess.Popen[str]]
) -> None:
    process = start_slow()
    os.kill(wait_for("a worker", lambda: max(workers(process.pid), default=None)), signal.SIGKILL)
    assert snowmelt.finish(process).succeeded().out.strip() == ANSWER


def test_kill_of_the_driver_is_reported(
    snowmelt: Snowmelt, start_slow: Callable[[], subprocess.Popen[str]]
) -> None:
    process = start_slow()
    wait_for("a worker", lambda: workers(process.pid))
    os.kill(drivers_and_workers(process.pid)[0], signal.SIGKILL)
    done = snowmelt.finish(process)
    assert done.code == 3
    done.failed_with("SM-0403")


def test_repeated_kills_of_a_worker_are_reported(
    snowmelt: Snowmelt, start_slow: Callable[[], subprocess.Popen[str]]
) -> None:
    process = start_slow()
    while process.poll() is None:
        for worker in workers(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        time.sleep(0.05)
    done = snowmelt.finish(process)
    assert done.code == 3
    done.failed_with("SM-0401")


def test_kill_of_the_command_is_cleaned_up(
    start_slow: Callable[[], subprocess.Popen[str]],
) -> None:
    before = MachineState()
    process = start_slow()
    process_below(process.pid, "snowmelt-query")
    process.kill()
    process.communicate()
    assert not before.remaining_within(CLEAN_WITHIN_S)


def test_kill_of_the_spawner_gives_the_same_answer_or_an_error(
    snowmelt: Snowmelt, start_slow: Callable[[], subprocess.Popen[str]]
) -> None:
    before = MachineState()
    process = start_slow()
    process_below(process.pid, "snowmelt-query")
    os.kill(process_below(process.pid, "internal spawner"), signal.SIGKILL)
    done = snowmelt.finish(process)
    if done.code == 0:
        assert done.out.strip() == ANSWER
    else:
        assert (done.code, done.report["code"]) == (3, "SM-0502"), done
        assert "again" in done.report["hint"]
    assert not before.remaining_within(CLEAN_WITHIN_S)


def test_kill_of_server_and_spawner_is_cleaned_up_by_the_next_start(
    snowmelt: Snowmelt, data: Path, start_slow: Callable[[], subprocess.Popen[str]]
) -> None:
    before = MachineState()
    process = start_slow()
    process_below(process.pid, "snowmelt-query")
    spawner = process_below(process.pid, "internal spawner")
    # Stopped first, so that neither detects the end of the other.
    os.kill(spawner, signal.SIGSTOP)
    process.kill()
    os.kill(spawner, signal.SIGKILL)
    process.communicate()
    wait_for("the sandboxes' end", lambda: "processes" not in before.new_since())
    assert snowmelt.rows(f"select count(*) as n from '{data / 'customer'}'") == [{"n": 1500}]
    assert not before.remaining_within(CLEAN_WITHIN_S)


def test_a_closed_output_pipe_is_not_a_failure(snowmelt: Snowmelt, data: Path) -> None:
    process = snowmelt.start("sql", f"select * from '{data / 'lineitem'}'", "-o", "csv")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=60)
    assert "panic" not in process.stderr.read()
    process.stderr.close()


def test_the_end_of_the_server_is_reported_to_a_query_that_runs(
    alone: Snowmelt, data: Path, udf_file: Callable[[str], Path]
) -> None:
    alone.run("up").succeeded()
    server = json.loads(alone.run("status", "-o", "json").succeeded().out)["pid"]
    sql = f"select sum(slow(c_custkey)) as s from '{data / 'customer'}'"
    process = alone.start("sql", sql, "--udf", udf_file(SLOW), "--workers", 2)
    wait_for("a worker", lambda: workers(server))
    alone.run("down", "--grace", "0s").succeeded()
    alone.finish(process).failed_with("SM-0113", "the server ends")


def test_a_query_that_ends_early_leaves_no_output_file(
    snowmelt: Snowmelt,
    data: Path,
    udf_file: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    target = tmp_path / "out" / "answer.csv"
    target.parent.mkdir()
    sql = f"select slow(c_custkey) as s from '{data / 'customer'}'"
    process = snowmelt.start("sql", sql, "--udf", udf_file(SLOW), "-o", "csv", "-O", target)
    process_below(process.pid, "snowmelt-query")
    process.send_signal(signal.SIGINT)
    snowmelt.finish(process)
    assert list(target.parent.iterdir()) == []
