"""Policies of egress that can never work are refused instead of leaving functions to wait."""

import json
import subprocess

import pytest
from conftest import Snowmelt

PROGRAM = """
import json
import snowmelt as sm
import snowmelt.errors

def refusal(address):
    try:
        sm.burst(lambda rank: rank, 1, memory="64MiB", network=sm.Network(egress=[address]))
    except snowmelt.errors.Error as error:
        return [error.code, str(error)]

print(json.dumps([refusal(address) for address in {addresses!r}]))
"""


def _own_address() -> str:
    command = ["ip", "-j", "-4", "address", "show", "scope", "global"]
    links = json.loads(subprocess.check_output(command))
    found = [info["local"] for link in links for info in link.get("addr_info", [])]
    if not found:
        pytest.skip("this machine has only the loopback address")
    return str(found[0])


def test_egress_to_the_host_itself_and_to_credentials_is_refused(alone: Snowmelt) -> None:
    addresses = [_own_address(), "169.254.169.254"]
    done = alone.python(PROGRAM.format(addresses=addresses)).succeeded()
    host, credentials = json.loads(done.out)
    assert [host[0], credentials[0]] == ["SM-0602", "SM-0110"]
    assert f"{addresses[0]}: it is an address of the host itself" in host[1]
    assert "169.254.0.0/16 can never be reached" in credentials[1]
