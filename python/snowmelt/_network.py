"""The network of a burst: who may talk to whom, and what may be reached outside.

Invariant: what is no range of IPv4 addresses with ports is refused here, before anything is sent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, Union

from .errors import make

_EXAMPLE = '"203.0.113.0/24:443", "203.0.113.7:80,8000-8010" or "203.0.113.7"'
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
# Where clouds give out credentials; no policy opens it (docs/network.md).
_NEVER = ipaddress.IPv4Network("169.254.0.0/16")


class Network:
    """A network of a burst's own, over all its hosts. Its functions talk to each other; outside
    they reach only what `egress` names, with the address of their host.

    Each entry of `egress` is a range of IPv4 or one address, then the TCP and UDP ports, all if
    there are none: `"203.0.113.0/24:443"`, `"203.0.113.7:80,8000-8010"`.
    """

    def __init__(self, *, egress: Iterable[str] = ()) -> None:
        if isinstance(egress, str):
            hint = f"write egress=[{egress!r}]"
            raise make("SM-0110", "egress is a list of destinations, not one text", hint=hint)
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


Wanted = Union[str, Network, None]


def network_of(wanted: Wanted) -> Network | None:
    """What `network=` asks for; None without a network."""
    if wanted is None or wanted == "none":
        return None
    if wanted == "job":
        return Network()
    if isinstance(wanted, Network):
        return wanted
    hint = 'write network="job", network="none" or network=sm.Network(egress=[...])'
    raise make("SM-0110", f"there is no network {wanted!r}", hint=hint)


def _allow(entry: object) -> dict[str, Any]:
    """`Allow` of the API."""
    if not isinstance(entry, str):
        raise _refused(entry, "it is no text")
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
        raise _refused(entry, f"{_NEVER} is never reached, whatever a policy says")
    return found


def _reason(address: str, error: ValueError) -> str:
    try:
        around = ipaddress.IPv4Network(address, strict=False)
    except ValueError:
        if re.search("[A-Za-z]", address):
            return "names are not looked up; write the address"
        return str(error)
    return f"{address} is no range, the one around it is {around}"


def _group(entry: str, group: str) -> tuple[int, int]:
    """The first and the last port."""
    match = _PORTS.fullmatch(group.strip())
    if match is None:
        raise _refused(entry, f"{group!r} is no port and no range of ports")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if not 1 <= first <= last <= 65535:
        raise _refused(entry, f"there are no ports {group.strip()}")
    return first, last


def _refused(entry: object, reason: str) -> Exception:
    hint = f"write for example {_EXAMPLE}"
    return make("SM-0110", f"egress to {entry!r} cannot be granted: {reason}", hint=hint)
