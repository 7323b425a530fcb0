"""Valid networks of a burst, and invalid ones, which are refused before anything is sent."""

from __future__ import annotations

import pickle

import pytest

import snowmelt as sm
from snowmelt._network import network_of


def allowed(*egress: str) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (allow["to"], allow["ports"]) for allow in sm.Network(egress=egress).request()["egress"]
    ]


def test_destinations_are_addresses_or_ranges_with_or_without_ports() -> None:
    assert allowed("203.0.113.0/24:443") == [("203.0.113.0/24", [(443, 443)])]
    assert allowed("203.0.113.7") == [("203.0.113.7/32", [])]
    assert allowed("203.0.113.7:80, 8000-8010", "0.0.0.0/0:53") == [
        ("203.0.113.7/32", [(80, 80), (8000, 8010)]),
        ("0.0.0.0/0", [(53, 53)]),
    ]


@pytest.mark.parametrize(
    ("egress", "reason"),
    [
        ("example.org:443", "names are not resolved"),
        ("203.0.113.7/24:443", "its network is 203.0.113.0/24"),
        ("203.0.113.0/33", "203.0.113.0/33"),
        ("300.1.1.1", "300.1.1.1"),
        ("[2001:db8::1]:443", "only IPv4 leaves a job"),
        ("2001:db8::/32", "only IPv4 leaves a job"),
        ("203.0.113.7:", "neither a port"),
        ("203.0.113.7:https", "neither a port"),
        ("203.0.113.7:0", "ports 0 do not exist"),
        ("203.0.113.7:443-80", "ports 443-80 do not exist"),
        ("203.0.113.7:70000", "ports 70000 do not exist"),
        ("169.254.169.254:80", "never be reached"),
        ("", "''"),
        (443, "not a string"),
    ],
)
def test_invalid_destinations_are_refused_with_the_reason(egress: str, reason: str) -> None:
    with pytest.raises(sm.QueryError) as failed:
        sm.Network(egress=[egress])
    assert failed.value.code == "SM-0110"
    assert reason in failed.value.message and repr(egress) in failed.value.message
    assert failed.value.hint is not None and "203.0.113.0/24:443" in failed.value.hint


def test_a_string_is_refused_as_list_of_destinations() -> None:
    with pytest.raises(sm.QueryError) as failed:
        sm.Network(egress="203.0.113.7:443")
    assert failed.value.hint == "write egress=['203.0.113.7:443']"


def test_a_network_is_given_by_name_or_object() -> None:
    assert network_of(None) is None and network_of("none") is None
    assert network_of("job") == sm.Network()
    named = sm.Network(egress=["203.0.113.7:443"])
    assert network_of(named) is named and named != sm.Network()
    with pytest.raises(sm.QueryError, match="network 'host' does not exist"):
        network_of("host")  # type: ignore[arg-type]


def test_a_pickled_function_keeps_its_network() -> None:
    @sm.function(network=sm.Network(egress=["203.0.113.7:443"]))
    def fetch(rank: int) -> int:
        return rank

    assert fetch.network == sm.Network(egress=["203.0.113.7:443"])
    again = sm.Function.__new__(sm.Function)
    again.__setstate__(fetch.__getstate__())
    assert again.network == fetch.network
    assert pickle.loads(pickle.dumps(fetch.network)) == fetch.network


def test_a_wrong_network_is_refused_when_the_function_is_decorated() -> None:
    with pytest.raises(sm.QueryError, match="network 'jobs' does not exist"):
        sm.function(network="jobs")(lambda event: event)
