"""The network of a burst and its egress policy.

Invariant: an entry that is not a range of IPv4 addresses with ports is refused here, before
anything is sent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, Union

from .errors import make

_EXAMPLE = '"203.0.113.0/24:443", "203.0.113.7:80,8000-8010" or "203.0.113.7"'
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
# The metadata services of clouds, which return credentials; no policy opens it
# (docs/explanation/network.md).
_NEVER = ipaddress.IPv4Network("169.254.0.0/16")


class Network:
    """The private network of a burst, over all its hosts. Its functions can communicate with each
    other. Outside it they can reach only the entries of `egress`, with the address of their host.

    Each entry of `egress` is an IPv4 address or range, then TCP and UDP ports; without ports, all
    are allowed: `"203.0.113.0/24:443"`, `"203.0.113.7:80,8000-8010"`.
    """

    def __init__(self, *, egress: Iterable[str] = ()) -> None:
        if isinstance(egress, str):
            hint = f"write egress=[{egress!r}]"
            raise make("SM-0110", "egress is a list of destinations, not one string", hint=hint)
        self.egress = tuple(egress)
        self._allowed = [_allow(entry) for entry in self.egress]

    def __repr__(self) -> str:
        return f"Network(egress={list(self.egress)!r})" if self.egress else "Network()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self._allowed == other._allowed

    def __hash__(self) -> int:
        return hash(self.egress)

    def request(self) -> dict[str, Any]:
        """`NetworkRequest` of the API."""
        return {"egress": self._allowed}


NetworkArgument = Union[str, Network, None]


def network_of(wanted: NetworkArgument) -> Network | None:
    """The network of an argument `network=`; None without a network."""
    if wanted is None or wanted == "none":
        return None
    if wanted == "job":
        return Network()
    if isinstance(wanted, Network):
        return wanted
    hint = 'write network="job", network="none" or network=sm.Network(egress=[...])'
    raise make("SM-0110", f"the network {wanted!r} does not exist", hint=hint)


def _allow(entry: object) -> dict[str, Any]:
    """`Allow` of the API."""
    if not isinstance(entry, str):
        raise _refused(entry, "it is not a string")
    address, colon, ports = entry.partition(":")
    if entry.count(":") > 1:
        raise _refused(entry, "only IPv4 leaves a job")
    groups = [_group(entry, group) for group in ports.split(",")] if colon else []
    return {"to": str(_range(entry, address)), "ports": groups}


def _range(entry: str, address: str) -> ipaddress.IPv4Network:
    try:
        found = ipaddress.IPv4Network(address)
    except ValueError as error:
        raise _refused(entry, _reason(address, error)) from None
    if found.subnet_of(_NEVER):
        raise _refused(entry, f"{_NEVER} can never be reached, independent of the policy")
    return found


def _reason(address: str, error: ValueError) -> str:
    try:
        around = ipaddress.IPv4Network(address, strict=False)
    except ValueError:
        if re.search("[A-Za-z]", address):
            return "names are not resolved; write the address"
        return str(error)
    return f"{address} is not a range, its network is {around}"


def _group(entry: str, group: str) -> tuple[int, int]:
    """The first and the last port."""
    match = _PORTS.fullmatch(group.strip())
    if match is None:
        raise _refused(entry, f"{group!r} is neither a port nor a range of ports")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if not 1 <= first <= last <= 65535:
        raise _refused(entry, f"the ports {group.strip()} do not exist")
    return first, last


def _refused(entry: object, reason: str) -> Exception:
    hint = f"write for example {_EXAMPLE}"
    return make("SM-0110", f"egress to {entry!r} cannot be granted: {reason}", hint=hint)
