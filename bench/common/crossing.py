"""The bytes of a query on several hosts that must cross a link, from its profile."""

from collections import Counter, defaultdict
from typing import Any


def least_bytes(profile: dict[str, Any], driver_host: str) -> float:
    """Bytes of rows that were read on another host than the one that wrote them.

    Rows are split evenly by a hash, so a host reads its share of the tasks of each host's rows.
    What all tasks of a stage read has to cross once for each other host.
    """
    stages = {stage["stage"]: stage for stage in profile["stages"]}
    rows: dict[int, Counter[str]] = defaultdict(Counter)
    tasks: dict[int, Counter[str]] = defaultdict(Counter)
    for lane in profile["lanes"]:
        if lane["name"].startswith("worker"):
            rows[lane["stage"]][lane["host"]] += lane["rows"]
            tasks[lane["stage"]][lane["host"]] += 1
    sent: Counter[str] = Counter()
    for number, stage in stages.items():
        for host, count in rows[number].items():
            share = count / max(rows[number].total(), 1)
            if stage["medium"] == "driver" and host != driver_host:
                sent["driver"] += round(share * stage["bytes_sent"])
    crossing = float(sent["driver"])
    for number, stage in stages.items():
        if not stage["reads"]:
            continue
        written: Counter[str] = Counter()
        for source in stage["reads"]:
            for host, count in rows[source].items():
                share = count / max(rows[source].total(), 1)
                written[host] += round(share * stages[source]["bytes_sent"])
        all_tasks, all_bytes = tasks[number].total(), max(written.total(), 1)
        same = sum(written[host] / all_bytes * tasks[number][host] / all_tasks for host in written)
        others = len(tasks[number]) - 1
        crossing += min(stage["bytes_received"] * (1 - same), all_bytes * max(others, 1))
    return crossing
