"""Bursts in simulated time: the scenarios of docs/simulate.md, by the command line.

The times are computed, so the assertions do not depend on the machine.
"""

import json
from typing import Any

from conftest import Snowmelt

MB = 1_000_000
SLOW = (
    *("--link", "25mbit", "--registry-link", "25mbit"),
    *("--image-size", "244MB", "--start-bytes", "72.8MB"),
)


def _simulated(snowmelt: Snowmelt, *arguments: object) -> dict[str, dict[str, Any]]:
    done = snowmelt.run("simulate", "-o", "json", *arguments).succeeded()
    answer = json.loads(done.out)
    assert answer["simulated"] is True
    assert answer["assumptions"]
    return {outcome["strategy"]: outcome for outcome in answer["outcomes"]}


def test_a_tree_starts_2500_containers_on_1000_hosts_sooner_than_faasnet(
    snowmelt: Snowmelt,
) -> None:
    found = _simulated(snowmelt, "--hosts", 1000, "--containers", 2500)
    tree, registry, pull = found["tree"], found["registry"], found["pull"]
    assert tree["containers"] == 2500
    assert tree["started"]["last"] < 8.3
    assert tree["registry_bytes"] == 758 * MB
    assert registry["registry_bytes"] == 1000 * 758 * MB
    assert pull["started"]["last"] > 13 * tree["started"]["last"]


def test_the_start_profile_reaches_1000_hosts_within_4_s(snowmelt: Snowmelt) -> None:
    burst = ("--hosts", 1000, "--containers", 10000, "--strategy", "tree")
    tree = _simulated(snowmelt, *burst)["tree"]
    assert tree["containers"] == 10000
    assert tree["arrived"]["last"] < 4


def test_a_hundred_thousand_hosts_cost_the_registry_no_more_than_two(snowmelt: Snowmelt) -> None:
    few, many = (
        _simulated(snowmelt, "--hosts", hosts, "--strategy", "tree")["tree"]
        for hosts in (2, 100_000)
    )
    assert few["registry_bytes"] == many["registry_bytes"]
    assert many["received_bytes"] == 100_000 * 758 * MB
    assert many["started"]["last"] < 1.05 * few["started"]["last"]


def test_stripes_keep_64_hosts_near_the_time_of_one_where_a_tree_takes_twice_as_long(
    snowmelt: Snowmelt,
) -> None:
    one = _simulated(snowmelt, *SLOW, "--hosts", 1, "--strategy", "tree")["tree"]
    many = _simulated(snowmelt, *SLOW, "--hosts", 64, "--strategy", "tree,stripes")
    alone = one["started"]["last"]
    assert many["stripes"]["started"]["last"] < 1.3 * alone
    assert 1.9 * alone < many["tree"]["started"]["last"] < 2.1 * alone


def test_all_hosts_that_are_left_start_when_some_fail(snowmelt: Snowmelt) -> None:
    failing = ("--hosts", 300, "--kill", 40, "--strategy", "tree,layers,stripes", "--seed", 11)
    for repair in ("refill", "rotate"):
        found = _simulated(snowmelt, *failing, "--repair", repair)
        assert found == _simulated(snowmelt, *failing, "--repair", repair)
        for outcome in found.values():
            assert (outcome["killed"], outcome["hosts"], outcome["containers"]) == (40, 260, 260)
            assert outcome["moves"] > 0
            # A new root reads what the last one had before it.
            assert 758 * MB <= outcome["registry_bytes"] < 2 * 758 * MB


def test_settings_that_contradict_each_other_are_refused(snowmelt: Snowmelt) -> None:
    refused = snowmelt.run("simulate", "--hosts", 2, "--containers", 100)
    refused.failed_with("SM-0110", "100 containers of a function do not fit 40 places")
