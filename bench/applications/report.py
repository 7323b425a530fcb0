"""The report of an application about a run, as a line of JSON."""

import json
from typing import Any

import snowmelt as sm


def network_ms(results: "sm.BurstResults[Any]") -> float:
    """The longest time of the network on a host: created, and all hosts reached."""
    return max(host["network_us"] + host["reached_us"] for host in results.hosts) / 1000


def tell(results: "sm.BurstResults[Any]", **more: Any) -> None:
    """Prints the times of a burst in milliseconds, and further fields."""
    row = {
        "functions": len(results),
        "hosts": len(results.hosts),
        "network_ms": network_ms(results),
        "started_ms": results.started_ms,
        "wall_ms": results.wall_ms,
        "messages": max(host["network"]["messages"] for host in results.hosts),
    }
    print(json.dumps(row | more), flush=True)
