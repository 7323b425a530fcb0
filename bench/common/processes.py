"""Processor time and memory of a process and of everything below it, and of the machine."""

import os
from collections import defaultdict
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds_below(root: int) -> float:
    """User and system time of a process, of the processes below it, and of those that have ended
    and were waited for."""
    children: dict[int, list[int]] = defaultdict(list)
    own: dict[int, float] = {}
    ended: dict[int, float] = {}
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
        own[pid] = sum(map(int, fields[11:13])) * TICK
        ended[pid] = sum(map(int, fields[13:15])) * TICK
    total, left = 0.0, [root]
    while left:
        pid = left.pop()
        # Ticks leave out up to 10 ms of each process, which is most of what a small worker uses;
        # the threads that run leave out those that have ended.
        total += max(own.get(pid, 0.0), _threads(pid)) + ended.get(pid, 0.0)
        left += children[pid]
    return total


def busy_seconds() -> float:
    """Seconds of all processors of the machine so far that were not idle."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) * TICK


def _threads(pid: int) -> float:
    """Seconds that the threads of a process have been on a processor."""
    total = 0
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        # The process has ended, or this kernel does not keep it.
        pass
    return total / 1e9


def memory_below(root: int) -> dict[str, int]:
    """Proportional set size of a process and of the processes below it, by program, its first
    arguments, and its number."""
    found: dict[str, int] = {}
    left = [root]
    while left:
        pid = left.pop()
        folder = Path(f"/proc/{pid}")
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            lines = (folder / "smaps_rollup").read_text().splitlines()
            for task in (folder / "task").iterdir():
                left += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            # The process has ended.
            continue
        sizes = (int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        name = " ".join([Path(words[0]).name, *words[1:3]]).strip()
        found[f"{name} ({pid})"] = next(sizes, 0)
    return found
