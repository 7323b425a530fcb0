"""Finds out which memory a child of a zygote touches from its order to its first answer.

A child that waits to be asked for (a spare) touches it before: each page that it copies from its
zygote only then costs an order 5 to 10 us. Which pages those are is not guessed: a scout, forked
for that alone, does all that a child does and looks at its own page table at the end. It runs
nothing of the user's but what its zygote has imported. Invariant: whatever becomes of a scout, its
zygote goes on without it.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import enter

PAGE = os.sysconf("SC_PAGE_SIZE")
# Populate (prefault) page tables, readable and writable (madvise(2), Linux 5.14).
POPULATE_READ, POPULATE_WRITE = 22, 23
# Of an entry of /proc/self/pagemap: present, of a file, mapped by this process alone.
PRESENT, OF_FILE, EXCLUSIVE = 1 << 63, 1 << 61, 1 << 56

# Looked at together: most of what is mapped is not there.
PART = 512 * PAGE

# It takes 20 ms; one that hangs is given up.
PATIENCE = 5.0
FILE = "/tmp/.snowmelt-scout"

Span = tuple[int, int, int]
Mapping = tuple[int, int]


def send_out(imported: list[str], unused: Mapping = (0, 0)) -> list[Span]:
    """What a child of this process touches, as (address, bytes, advice); nothing if that cannot be
    found out. Nobody looks at `unused` addresses."""
    if enter.RUNTIME not in sys.modules:
        return []
    # What it maps itself is not inherited, and others will have it elsewhere.
    writable, readable = mappings(unused, is_writable), mappings(unused, is_file)
    mine, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run(imported)
            spans = touched(writable, readable)
            with open(theirs, "w") as tell:
                json.dump(spans, tell)
            status = 0
        except BaseException:  # noqa: BLE001 a scout never becomes a zygote
            sys.excepthook(*sys.exc_info())
        os._exit(status)
    os.close(theirs)
    told = hear(mine)
    if told is None:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return [(start, length, advice) for start, length, advice in json.loads(told or b"[]")]
    except ValueError:
        return []


def hear(mine: int) -> bytes | None:
    """All that a scout tells; None of one that takes too long."""
    until = time.monotonic() + PATIENCE
    told = b""
    with open(mine, "rb", buffering=0) as pipe:
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return None
            some = pipe.read(1 << 16)
            if not some:
                return told
            told += some


class Listener:
    """A channel on which the platform asks for one call and then for no more."""

    def __init__(self, load: dict[str, Any]) -> None:
        import socket

        from snowmelt._runtime import frames

        ours, theirs = socket.socketpair()
        self._waiting = [theirs]
        self._frames, self._platform = frames, frames.Connection(ours)
        self._platform.send_json(frames.LOAD, load)
        self._platform.send_json(frames.CALL, {"invocation": "", "event": None})

    def accept(self) -> tuple[Any, Any]:
        """The connection; the next time, the end."""
        if self._waiting:
            return self._waiting.pop(), None
        self._platform.expect(self._frames.READY)
        self._platform.expect(self._frames.RETURN)
        raise SystemExit(0)


def run(imported: list[str]) -> None:
    """Does what a spare does, and what it does once it is asked for."""
    text = "".join(f"import {name}\n" for name in imported)
    text += "\n\ndef handler(event):\n    answer = [event]\n    return answer\n"
    with open(FILE, "w") as file:
        json.dump({"kind": "source", "file": "handler.py", "text": text}, file)
    load = {"mode": "function", "code": FILE, "function": "handler", "on_error": "raise"}
    listener = Listener(load)
    enter.rehearse()
    sys.modules[enter.RUNTIME].stand_by(listener)
    enter.ready.append(listener)
    # All are others than the zygote's.
    environment = {"SNOWMELT_LOAD_AHEAD": FILE, **{f"SCOUT_{name}": name for name in os.environ}}
    entries = [f"e{name}={value}" for name, value in environment.items()]
    entries += ["p/run/snowmelt/none", f"c{enter.RUNTIME}:main"]
    try:
        if enter.begin("\0".join(entries).encode()) != 0:
            raise RuntimeError("a scout was not served")
    finally:
        os.unlink(FILE)


def is_writable(rights: str, _inode: str, _name: list[str]) -> bool:
    return rights == "rw-p"


def is_anonymous(rights: str, inode: str, name: list[str]) -> bool:
    return rights == "rw-p" and inode == "0" and name[:1] != ["[stack]"]


def is_file(rights: str, inode: str, _name: list[str]) -> bool:
    return rights in ("r--p", "r-xp") and inode != "0"


def mappings(unused: Mapping, wanted: Callable[[str, str, list[str]], bool]) -> list[Mapping]:
    """Mappings of this process of some kind, as (start, end), without the addresses in `unused`."""
    found = []
    with open("/proc/self/maps") as lines:
        for line in lines:
            span, rights, _, _, inode, *name = line.split()
            if wanted(rights, inode, name):
                start, end = (int(text, 16) for text in span.split("-"))
                parts = (start, min(end, unused[0])), (max(start, unused[1]), end)
                found += [(first, last) for first, last in parts if first < last]
    return found


def touched(writable: list[Mapping], readable: list[Mapping]) -> list[Span]:
    """Of these mappings, the pages that this process has copied, and those of files that it has."""
    table = os.open("/proc/self/pagemap", os.O_RDONLY)
    own = PRESENT | EXCLUSIVE
    copied = [
        (start, length, POPULATE_WRITE)
        for mapping in writable
        for start, length in runs(table, mapping, own, own | OF_FILE)
    ]
    seen = [
        (start, length, POPULATE_READ)
        for mapping in readable
        for start, length in runs(table, mapping, PRESENT, PRESENT)
    ]
    os.close(table)
    return copied + seen


def runs(table: int, mapping: Mapping, wanted: int, looked_at: int) -> list[tuple[int, int]]:
    """Runs of pages with these bits and no others of those looked at, as (address, bytes)."""
    start, end = mapping
    found: list[tuple[int, int]] = []
    for first in range(start, end, PART):
        count = (min(first + PART, end) - first) // PAGE
        entries = os.pread(table, count * 8, first // PAGE * 8)
        if not entries.strip(b"\0"):
            continue
        for place, entry in enumerate(memoryview(entries).cast("Q")):
            if entry & looked_at != wanted:
                continue
            address = first + place * PAGE
            if found and sum(found[-1]) == address:
                found[-1] = (found[-1][0], found[-1][1] + PAGE)
            else:
                found.append((address, PAGE))
    return found
