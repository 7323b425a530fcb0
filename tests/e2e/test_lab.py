"""Bursts over the hosts of a lab: rings, tenants, and faults of hosts during a burst."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Snowmelt, descendants, wait_for
from lab import Lab, lab

RING = """
    def ring(rank):
        import socket
        job = sm.job()
        server = job.listen(5000)
        right = job.connect((rank + 1) % job.size, 5000)
        left, _ = server.accept()
        value = total = rank
        for _ in range(job.size - 1):
            right.sendall(value.to_bytes(8, "big"))
            value = int.from_bytes(left.recv(8, socket.MSG_WAITALL), "big")
            total += value
        return total

    def burst(ranks):
        done = sm.burst(ring, ranks, network="job", memory="64MiB", progress=False)
        assert list(done) == [sum(range(ranks))] * ranks, done
        return [host["host"] for host in done.hosts]
"""
RING_OF_8 = RING + "    print(json.dumps(burst(8)))"
WAITS = """
    import time
    sm.burst(lambda rank: time.sleep(90), 8, network="job", memory="64MiB", progress=False)
"""


@pytest.fixture
def four(alone: Snowmelt) -> Iterator[Lab]:
    with lab(alone, 4, "--link", "1gbit", "--memory", "1GiB") as made:
        yield made


def names(*numbers: int) -> list[str]:
    return [f"host-{number}" for number in numbers]


def test_a_ring_runs_on_all_hosts_and_on_hosts_that_join_later(four: Lab) -> None:
    ring = RING + "    print(json.dumps(burst(10)))"
    assert four.python(ring) == names(1, 2, 3, 4)
    four.command("add", "1").succeeded()
    assert four.python(ring) == names(1, 2, 3, 4, 5)
    # No address was learned: the kernel keeps few learned addresses for all hosts of a large lab.
    for host in range(1, 6):
        shown = four.command(
            "exec", f"host-{host}", "--", "ip", "-o", "neigh", "show", "dev", "eth0"
        )
        lines = shown.succeeded().out.splitlines()
        known = {line.split()[0]: line.split()[-1] for line in lines}
        assert known == {f"192.0.2.{n}": "PERMANENT" for n in range(1, 6) if n != host}
    four.wait_until_clean()


def test_no_host_is_lost_on_a_busy_machine(alone: Snowmelt) -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    with lab(alone, 8, "--link", "1gbit", "--memory", "512MiB") as made:
        spinners = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 2))]
        try:
            for _ in range(3):
                assert made.python(RING_OF_8) == names(*range(1, 9))
        finally:
            for spinner in spinners:
                spinner.kill()
                spinner.wait()
        made.wait_until_clean()


def test_unsent_data_to_an_ended_rank_delays_nothing(four: Lab) -> None:
    hosts = four.python("""
        def part(rank):
            import socket, time
            job = sm.job()
            if rank == 0:
                with job.listen(5000) as server:
                    [server.accept()[0].close() for _ in range(1, job.size)]
                return
            with job.connect(0, 5000) as connection:
                connection.recv(1)
                # Its host has released the network by then, and does not answer any more.
                time.sleep(1)

        done = sm.burst(part, 4, network="job", memory="64MiB", progress=False)
        print(json.dumps([host["host"] for host in done.hosts]))
    """)
    assert hosts == names(1, 2, 3, 4)
    logs = {host: four.log(host) for host in hosts}
    assert not [host for host, log in logs.items() if "did not arrive" in log], logs
    four.wait_until_clean()


def test_two_tenants_with_the_same_addresses_on_the_same_hosts_are_isolated(four: Lab) -> None:
    listening = four.start("""
        @sm.function(tenant="one")
        def listens(rank):
            server = sm.job().listen(5000)
            server.accept()
            raise RuntimeError("reached")

        sm.burst(listens, 8, network="job", memory="64MiB", progress=False)
    """)
    wait_for("the first tenant's functions", lambda: sum(four.ranks().values()) == 8)
    probed = four.python("""
        @sm.function(tenant="two")
        def probes(rank):
            import socket
            job = sm.job()
            found = []
            hosts = [f"192.0.2.{number}" for number in range(1, 5)]
            for address in [*job.peers, *hosts, "169.254.169.254"]:
                for port in (5000, 7070):
                    with socket.socket() as probe:
                        probe.settimeout(0.2)
                        try:
                            probe.connect((address, port))
                            found.append(address)
                        except OSError:
                            pass
            return job.address, found

        done = sm.burst(probes, 8, network="job", memory="64MiB", progress=False)
        print(json.dumps([list(done), [host["host"] for host in done.hosts]]))
    """)
    answers, hosts = probed
    assert hosts == names(1, 2, 3, 4)
    assert all(not found for _, found in answers), answers
    assert listening.poll() is None, "a connection reached it"
    listening.kill()
    listening.communicate()
    four.wait_until_clean()


def test_a_host_killed_in_a_job_is_reported_and_the_next_burst_runs(four: Lab) -> None:
    program = four.start(WAITS)
    wait_for("the functions", lambda: sum(four.ranks().values()) == 8)
    four.fail("host-3")
    assert "SM-0703" in (said := four.refused(program)) and "host-3 (ranks 4 to 5)" in said, said
    four.wait_until_clean()
    wait_for("control to forget the host", lambda: "host-3" not in four.ranks())
    assert four.python(RING_OF_8) == names(1, 2, 4)
    four.heal("host-3")
    assert four.python(RING_OF_8) == names(1, 2, 3, 4)


def test_an_unreachable_host_fails_the_job_before_it_starts(four: Lab) -> None:
    four.fail("host-3", "partition")
    # Long before the time limit of the start.
    program = four.start("""
        sm.burst(lambda rank: rank, 8, network="job", memory="64MiB", start_within="30m",
                 progress=False)
    """)
    called = set()
    while program.poll() is None:
        called.update(four.ranks().values())
    said = four.refused(program)
    assert "SM-0604" in said and "host-3 (ranks 4 to 5) and host-2, host-4 do not" in said, said
    assert called == {0}, "nothing was called"
    four.wait_until_clean()
    four.heal("host-3")
    assert four.python(RING_OF_8) == names(1, 2, 3, 4)


def test_an_unplugged_host_is_lost_and_rejoins(four: Lab) -> None:
    program = four.start(WAITS)
    wait_for("the functions", lambda: sum(four.ranks().values()) == 8)
    four.fail("host-2", "unplug")
    assert "SM-0703" in (said := four.refused(program)) and "host-2" in said, said
    four.heal("host-2")
    four.wait_until_clean()
    assert four.python(RING_OF_8) == names(1, 2, 3, 4)


def test_a_burst_begun_while_a_host_is_unplugged_names_it(four: Lab) -> None:
    four.python(RING_OF_8)
    four.fail("host-4", "unplug")
    # Control still lists it because of its last heartbeat, or places the burst without it.
    program = four.start(RING + "    print(json.dumps(burst(8)))")
    out, said = program.communicate(timeout=120)
    assert ("host-4" in said) if program.returncode else json.loads(out) == names(1, 2, 3), said
    four.heal("host-4")
    four.wait_until_clean()


def test_hosts_are_not_lost_while_control_is_stopped(four: Lab) -> None:
    program = four.start("""
        import time
        done = sm.burst(lambda rank: time.sleep(12) or rank, 8, network="job", memory="64MiB",
                        progress=False)
        print(json.dumps(list(done)))
    """)
    wait_for("the functions", lambda: sum(four.ranks().values()) == 8)
    control = four.states()[0]["pid"]
    os.kill(control, signal.SIGSTOP)
    # Longer than the heartbeat timeout of a host.
    time.sleep(8)
    os.kill(control, signal.SIGCONT)
    out, said = program.communicate(timeout=120)
    assert program.returncode == 0, said
    assert json.loads(out) == list(range(8))


def test_a_burst_whose_zygote_has_ended_uses_another(four: Lab) -> None:
    four.python(RING_OF_8)
    nodes = [state["pid"] for state in four.states()]
    zygotes = [pid for node in nodes for pid, line in descendants(node).items() if "zygote" in line]
    assert zygotes
    for pid in zygotes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert four.python(RING_OF_8) == names(1, 2, 3, 4)
    four.wait_until_clean()


def test_a_node_killed_at_any_moment_is_cleaned_up(four: Lab) -> None:
    four.python(RING_OF_8)
    for delay in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6):
        program = four.start(WAITS)
        time.sleep(delay)
        four.fail("host-2")
        # Placed without the host if it had already ended, or ended with it.
        wait_for(
            "the job to end or to run without the host",
            lambda program=program: (
                program.poll() is not None
                or sum(ranks for host, ranks in four.ranks().items() if host != "host-2") == 8
            ),
        )
        # Unlike one that is killed, it cancels its burst at once.
        program.send_signal(signal.SIGINT)
        program.communicate()
        four.heal("host-2")
        four.wait_until_clean()
        wait_for("the functions to end", lambda: not sum(four.ranks().values()))
    assert four.python(RING_OF_8) == names(1, 2, 3, 4)


SLOW = """
    import time

    def slow(rank):
        print(f"rank {{rank}} runs", flush=True)
        time.sleep({seconds})
        return rank * rank

    done = sm.burst(slow, 6, memory="64MiB", progress=False{options})
    print(json.dumps([list(done), sorted(done.logs), done.job]))
"""


@pytest.mark.alone
def test_a_control_that_is_restarted_goes_on_with_its_bursts(alone: Snowmelt) -> None:
    with lab(alone, 4, "--memory", "1GiB", "--control-only") as made:
        networked = made.start(SLOW.format(seconds=12, options=", network='job'"))
        plain = made.start(SLOW.format(seconds=12, options=""))
        wait_for("the functions", lambda: sum(made.ranks().values()) == 12)
        assert made.ranks()["host-1"] == 0
        made.fail("host-1")
        # All of it happens while the functions run, and none of them is called a second time.
        made.heal("host-1")
        wait_for("the hosts to join again", lambda: len(made.ranks()) == 4)
        assert sum(made.ranks().values()) == 12, "they went on without control"
        for program in (networked, plain):
            out, said = program.communicate(timeout=120)
            assert program.returncode == 0, said
            results, logs, job = json.loads(out)
            assert results == [rank * rank for rank in range(6)]
            assert logs == [f"rank {rank} runs\n" for rank in range(6)]
            assert "ended" in [burst["state"] for burst in made.bursts() if burst["job"] == job]
        made.wait_until_clean()
        wait_for("the functions to end", lambda: not sum(made.ranks().values()))


def test_the_answer_of_a_burst_survives_a_restart_of_control(alone: Snowmelt) -> None:
    with lab(alone, 3, "--memory", "1GiB", "--control-only") as made:
        results, _, job = made.python(SLOW.format(seconds=0, options=""))
        made.fail("host-1")
        made.heal("host-1")
        again = made.python(
            SLOW.format(seconds=0, options=f", job={job!r}").replace("rank * rank", "None")
        )
        assert again[0] == results, "those of the first burst"


def test_a_host_that_is_unreachable_for_a_while_keeps_its_ranks(four: Lab) -> None:
    program = four.start(SLOW.format(seconds=15, options=""))
    wait_for("the functions", lambda: sum(four.ranks().values()) == 6)
    four.fail("host-3", "unplug")
    wait_for("control to remove the host", lambda: "host-3" not in four.ranks())
    four.heal("host-3")
    out, said = program.communicate(timeout=120)
    assert program.returncode == 0, said
    assert json.loads(out)[0] == [rank * rank for rank in range(6)]


def test_a_client_that_is_killed_gets_the_results_when_it_comes_back(four: Lab) -> None:
    job = four.python("print(json.dumps(sm.new_job()))")
    code = SLOW.format(seconds=6, options=f", job={job!r}")
    program = four.start(code)
    wait_for("the functions", lambda: sum(four.ranks().values()) == 6)
    program.kill()
    program.communicate()
    results, logs, found = four.python(code)
    assert (results, found) == ([rank * rank for rank in range(6)], job)
    assert logs == [f"rank {rank} runs\n" for rank in range(6)], "each ran once"


def codes(bursts: list[dict[str, Any]]) -> list[str | None]:
    """The code of each burst's error; None without one, and while it runs."""
    return [(burst["error"] or {}).get("code") for burst in bursts]


def test_a_burst_whose_client_does_not_come_back_is_ended(four: Lab) -> None:
    for end, failures in ((signal.SIGKILL, ["SM-0708"]), (signal.SIGINT, [])):
        program = four.start(WAITS)
        wait_for("the functions", lambda: sum(four.ranks().values()) == 8)
        program.send_signal(end)
        program.communicate(timeout=60)
        wait_for("the functions to end", lambda: not sum(four.ranks().values()))
        four.wait_until_clean()
        # A program that is interrupted cancels its burst: it ends, and is forgotten then.
        wait_for("its outcome", lambda expected=failures: codes(four.bursts()) == expected)
        for burst in four.bursts():
            four.client("burst", "cancel", burst["job"])


def test_a_lab_whose_processes_were_all_killed_can_be_ended(alone: Snowmelt) -> None:
    alone.run("lab", "up", "--hosts", 4).succeeded()
    made = Lab(alone)
    program = made.start(WAITS)
    wait_for("the functions", lambda: sum(made.ranks().values()) == 8)
    # Also the spawners, which would have cleaned up after their nodes.
    nodes = [state["pid"] for state in made.states()]
    for pid in [*nodes, *(pid for node in nodes for pid in descendants(node))]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # It would wait for control to come back.
    program.kill()
    program.communicate()
    wait_for("the hosts to end", lambda: not any(state["runs"] for state in made.states()))
    made.command("down").succeeded()
    assert not (alone.folder / "run/labs").exists()
    assert made.command("ls", "-o", "json").succeeded().out.strip() == "[]"


def test_a_lab_killed_during_its_start_is_removed_by_the_next(alone: Snowmelt) -> None:
    for delay in (0.01, 0.03, 0.06, 0.12):
        making = alone.start("lab", "up", "--hosts", 8)
        time.sleep(delay)
        making.kill()
        making.communicate()
        if (alone.folder / "run/labs/lab/lab.json").exists():
            alone.run("lab", "down").succeeded()
    with lab(alone, 2) as made:
        assert [state["runs"] for state in made.states()] == [True, True]


def test_wrong_arguments_are_reported(alone: Snowmelt) -> None:
    alone.run("lab", "up", "--hosts", 2, "--link", "1GB").failed_with("SM-0110", "1gbit")
    alone.run("lab", "up", "--hosts", 251).failed_with("SM-0110", "250")
    alone.run("lab", "down").failed_with("SM-0802", "lab up --name lab")
    with lab(alone, 1) as made:
        made.command("up", "--hosts", 1).failed_with("SM-0802", "is running already")
        made.command("fail", "host-2").failed_with("SM-0802", "host-1")
        made.command("run", "--", "no-such-program").failed_with("SM-0110", "no-such-program")
        assert json.loads(made.command("ls", "-o", "json").out)[0]["plan"]["hosts"] == 1


def test_delay_works_or_is_refused_by_name(alone: Snowmelt) -> None:
    done = alone.run("lab", "up", "--hosts", 2, "--delay", "20ms")
    if done.code != 0:
        done.failed_with("SM-0801", "sch_netem")
        assert not (alone.folder / "run/labs").exists()
        return
    shown = alone.run("lab", "exec", "host-2", "--", "tc", "qdisc").succeeded().out
    alone.run("lab", "down").succeeded()
    assert "netem" in shown and "delay 20ms" in shown, shown
