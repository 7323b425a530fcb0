"""How long a burst takes to start with a network, without one, and what the network's part is."""

from __future__ import annotations

import argparse

import report

import snowmelt as sm


@sm.function(memory="16MiB")
def nothing(rank: int) -> int:
    return rank


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", default="10,100,400")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    for network in ("job", "none"):
        nothing.burst(given.hosts, hosts=given.hosts, network=network, progress=False)
    for functions in map(int, given.functions.split(",")):
        for _ in range(given.times):
            for network in ("job", "none"):
                results = nothing.burst(
                    functions,
                    hosts=given.hosts,
                    network=network,
                    start_within="4m",
                    progress=False,
                )
                report.tell(results, network=network)


if __name__ == "__main__":
    main()
