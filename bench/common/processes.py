"""Processor time of a process and of everything below it."""

import os
from collections import defaultdict
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds_below(root: int) -> float:
    """User and system time of a process, of the processes below it, and of those that have ended
    and were waited for."""
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The name of the program, in parentheses, may contain spaces.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(folder.name)
        children[int(fields[1])].append(pid)
        used[pid] = sum(map(int, fields[11:15]))
    total, left = 0, [root]
    while left:
        pid = left.pop()
        total += used.get(pid, 0)
        left += children[pid]
    return total * TICK
