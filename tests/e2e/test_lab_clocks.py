"""Wall clocks of hosts that are set an hour ahead or behind while functions and queries run."""

import json
import time
from pathlib import Path
from typing import Any

from conftest import Snowmelt, wait_for
from lab import Lab, lab, write_numbers

from common.paths import SNOWMELT

HOUR = 3600
CONTROL, OTHER = "host-1", "host-2"

# The clock of each host, and what each rank has computed, which sleeps meanwhile.
CLOCKS = """
    import time

    def part(rank):
        before = time.monotonic()
        time.sleep({seconds})
        return rank, time.time(), time.monotonic() - before

    done = sm.burst(part, 6, memory="64MiB", progress=False)
    hosts = [host["host"] for host in done.hosts for _ in range(host["count"])]
    print(json.dumps([hosts, list(done)]))
"""


def ahead(found: Any) -> dict[str, float]:
    """How far the clock of each host is ahead of that of this machine, in hours."""
    hosts, answers = found
    assert [rank for rank, _, _ in answers] == list(range(6))
    now = time.time()
    return {
        host: round((then - now) / HOUR, 1)
        for host, (_, then, _) in zip(hosts, answers, strict=True)
    }


def faults(made: Lab) -> dict[str, list[str]]:
    return {state["name"]: state["faults"] for state in made.states()}


def test_bursts_and_calls_go_on_while_clocks_are_set(alone: Snowmelt, tmp_path: Path) -> None:
    with lab(alone, 3, "--memory", "1GiB") as made:
        (tmp_path / "f.py").write_text("def handler(event):\n    return event\n")
        made.client("fn", "deploy", "f", tmp_path / "f.py", "--memory", "64MiB")
        # Forked of zygotes that ran before the clocks were set, and so with the same clocks.
        assert ahead(made.python(CLOCKS.format(seconds=0))) == dict.fromkeys(
            ["host-1", "host-2", "host-3"], 0
        )
        for how, by in (("clock-ahead", 1), ("clock-behind", -1)):
            for host in (OTHER, CONTROL):
                event = json.dumps({"how": how, "host": host})
                call = ("fn", "call", "--data", event, "f")
                saved = made.client(*call, "--async").strip()
                burst = made.start(CLOCKS.format(seconds=6))
                wait_for("the functions", lambda: sum(made.ranks().values()) == 6)
                made.fail(host, how)
                assert faults(made)[host] == [how]
                out, said = burst.communicate(timeout=120)
                assert burst.returncode == 0, said
                hosts, answers = json.loads(out)
                assert set(hosts) == {"host-1", "host-2", "host-3"}, "none was lost"
                assert all(6 <= slept < 60 for _, _, slept in answers), answers
                expected = {name: by if name == host else 0 for name in hosts}
                assert ahead([hosts, answers]) == expected
                assert json.loads(made.client(*call)) == json.loads(event)
                assert json.loads(made.client("fn", "result", saved, "--wait")) == json.loads(event)
                made.command("heal", host).succeeded()
                healed = ahead(made.python(CLOCKS.format(seconds=0)))
                assert set(healed.values()) == {0}, healed
        # A new process has the right time.
        made.fail(OTHER, "clock-ahead")
        made.command("restart", OTHER).succeeded()
        wait_for("it to join", lambda: OTHER in made.ranks())
        assert faults(made)[OTHER] == []
        assert not [name for name in faults(made) if "panicked" in made.log(name)]
        made.wait_until_clean()


def test_a_query_names_the_host_whose_clock_is_too_wrong_for_a_store(
    alone: Snowmelt, tmp_path: Path
) -> None:
    rows = 320_000
    write_numbers(tmp_path, rows, files=8)
    options = ("--link", "1gbit", "--memory", "1GiB", "--store", "--store-link", "100mbit")
    with lab(alone, 3, *options) as made:
        made.upload(tmp_path)
        query = "select sum(a) as s from 's3://lab/t/*.parquet'"
        expected = [{"s": sum(range(rows))}]

        def asked() -> object:
            return made.rows(query, "--workers", 6, "--memory", "128MiB")

        assert asked() == expected
        # S3 refuses requests whose signatures are more than a quarter of an hour old, or too new.
        words = ("sql", query, "--workers", 6, "--memory", "128MiB")
        sql = ("run", "--", SNOWMELT, "--errors", "json", *words)
        wrong = {OTHER: "clock-ahead", CONTROL: "clock-behind", "store": "clock-ahead"}
        for member, how in wrong.items():
            made.fail(member, how)
            refused = made.command(*sql).failed_with("SM-0117", "clock")
            if member == OTHER:
                assert f"the host {OTHER} was refused" in refused["hint"]
                made.client("hosts", "drain", OTHER)
                wait_for("the others to answer", lambda: made.command(*sql).code == 0)
                made.client("hosts", "undrain", OTHER)
            made.command("heal", member).succeeded()
            assert asked() == expected, member
