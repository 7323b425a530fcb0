"""A host whose network damages what it sends: right answers, and the host is named."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from analytics import TPCH_QUERIES
from conftest import Snowmelt, wait_for
from lab import Lab, lab
from reference import Reference
from suites import client_of, failures, report, wrong

HOSTS = 3
DAMAGES = "host-3"
# Joins and groups of many rows between hosts.
NAMES = ("q03", "q05", "q09", "q10", "q13", "q18", "q21", "q22")
QUERIES = {name: (TPCH_QUERIES / f"{name}.sql").read_text() for name in NAMES}


@pytest.fixture
def three(alone: Snowmelt) -> Iterator[Lab]:
    with lab(alone, HOSTS, "--link", "1gbit", "--memory", "2GiB") as made:
        [path] = (alone.folder / "run" / "labs").glob("*/snowmelt.sock")
        with client_of(path):
            yield made


def damaged(made: Lab) -> dict[str, int]:
    """Connections that were given up for damaged data, by the host that sent them."""
    [path] = (made.snowmelt.folder / "run" / "labs").glob("*/snowmelt.sock")
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(path))
        control.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        text = b"".join(iter(lambda: control.recv(1 << 16), b"")).decode()
    sample = r'^snowmelt_damaged_connections_total\{host="([^"]+)"\} (\d+)\r?$'
    return {host: int(count) for host, count in re.findall(sample, text, re.MULTILINE)}


@pytest.mark.parametrize("exchange", ["hosts", "streams"])
def test_rows_of_a_host_that_damages_them_change_no_answer(
    three: Lab, tables: dict[str, Path], reference: Reference, exchange: str
) -> None:
    assert not damaged(three)
    three.fail(DAMAGES, "corrupt")
    check = lambda sql: wrong(sql, tables, 6, reference, exchange=exchange)  # noqa: E731
    found = failures(QUERIES, check)
    assert not found, report(found, QUERIES, 6)
    # A host tells with its next report what it has found.
    wait_for("the host to be counted", lambda: damaged(three))
    assert damaged(three).keys() == {DAMAGES}
    three.heal(DAMAGES)
    before = damaged(three)
    found = failures(QUERIES, check)
    assert not found, report(found, QUERIES, 6)
    assert damaged(three) == before
