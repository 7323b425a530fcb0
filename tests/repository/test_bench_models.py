"""What the benches measure with, and compare with: processor time, requests of exchanges, and bytes
that must cross."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from common.crossing import least_bytes
from common.processes import TICK, cpu_seconds_below
from exchange_model import WAYS, Way, simulated, table_2


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("side", [2, 3, 4])
def test_powers_need_the_requests_of_the_papers_table(way: Way, side: int) -> None:
    workers = side**way.levels
    found, table = simulated(way, workers), table_2(way, workers)
    assert found.reads == pytest.approx(table.reads) and found.writes == pytest.approx(table.writes)


def test_levels_and_combining_make_requests_fewer() -> None:
    for workers in (16, 20, 64, 100):
        totals = {way.name: simulated(way, workers).total for way in WAYS}
        assert totals["2l"] < totals["1l"] and totals["2l-wc"] < totals["1l-wc"], totals
        assert all(totals[f"{level}l-wc"] < totals[f"{level}l"] for level in (1, 2, 3)), totals


def profile(second: list[str], received: int) -> dict[str, Any]:
    """Two tasks that write 100 bytes each on `a` and `b`, and tasks on `second` that read them."""
    stages = [
        {"stage": 0, "reads": [], "medium": "hosts", "bytes_sent": 200, "bytes_received": 0},
        {
            "stage": 1,
            "reads": [0],
            "medium": "driver",
            "bytes_sent": 10 * len(second),
            "bytes_received": received,
        },
    ]
    lanes = [{"name": "worker 0", "stage": 0, "host": host, "rows": 5} for host in "ab"]
    lanes += [{"name": "worker 1", "stage": 1, "host": host, "rows": 1} for host in second]
    return {"stages": stages, "lanes": lanes}


def test_half_of_the_rows_cross_between_two_hosts() -> None:
    # Each host reads half of what the other wrote, and one of two answers is not on the driver's.
    assert least_bytes(profile(["a", "b"], 200), "a") == 100 + 10


def test_what_one_host_reads_crosses_from_the_other_alone() -> None:
    assert least_bytes(profile(["a"], 200), "a") == 100
    assert least_bytes(profile(["b"], 200), "a") == 100 + 10


def test_what_all_tasks_read_crosses_once_for_each_other_host() -> None:
    # Four tasks read all 200 bytes; a host has half of them itself.
    assert least_bytes(profile(["a", "a", "b", "b"], 800), "a") == 200 + 20


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel keeps ticks only"
)
def test_processor_time_below_a_tick_is_counted() -> None:
    # A shell that waits for a line: it needs far less than a tick to start.
    command = ["/bin/sh", "-c", "echo ready; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == b"ready\n"
        used = cpu_seconds_below(shell.pid)
        assert used > 0 and used % TICK > 0
        shell.communicate(b"\n")


def test_processor_time_of_ended_processes_is_counted() -> None:
    burn = "s = 0\nfor i in range(3_000_000): s += i"
    command = ["/bin/sh", "-c", f"{sys.executable} -c '{burn}'; echo ready; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == b"ready\n"
        assert cpu_seconds_below(shell.pid) > 2 * TICK
        shell.communicate(b"\n")
