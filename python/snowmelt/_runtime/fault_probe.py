"""Finds out which memory a child of a zygote touches from its order to its first answer.

A preforked child touches that memory before: each page that it copies from its zygote only later
costs an order 5 to 10 us. The pages are not guessed: a probe child, forked only for that, runs all
steps of a child and inspects its own page table at the end. It runs no user code except the imports
of its zygote. Invariant: whatever happens to a probe child, its zygote continues without it.
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
# Bits of an entry of /proc/self/pagemap: present, of a file, mapped only by this process.
PRESENT, OF_FILE, EXCLUSIVE = 1 << 63, 1 << 61, 1 << 56

# Read in one piece: most of a mapping is usually not present.
PART = 512 * PAGE

# A probe takes 20 ms; one that hangs is killed after this time.
TIMEOUT = 5.0
FILE = "/tmp/.snowmelt-fault-probe"

Span = tuple[int, int, int]
Mapping = tuple[int, int]


def probe(imported: list[str], unused: Mapping = (0, 0)) -> list[Span]:
    """The memory that a child of this process touches, as (address, bytes, advice); empty if that
    cannot be found out. `unused` addresses are not inspected."""
    if enter.RUNTIME not in sys.modules:
        return []
    # Memory that the probe child maps itself is not inherited; other children map it elsewhere.
    writable, readable = mappings(unused, is_writable), mappings(unused, is_file)
    mine, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run(imported)
            spans = touched(writable, readable)
            with open(theirs, "w") as pipe:
                json.dump(spans, pipe)
            status = 0
        except BaseException:  # noqa: BLE001 a probe child never becomes a zygote
            sys.excepthook(*sys.exc_info())
        os._exit(status)
    os.close(theirs)
    reply = read_reply(mine)
    if reply is None:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return [(start, length, advice) for start, length, advice in json.loads(reply or b"[]")]
    except ValueError:
        return []


def read_reply(mine: int) -> bytes | None:
    """The whole reply of a probe child; None after a timeout."""
    until = time.monotonic() + TIMEOUT
    reply = b""
    with open(mine, "rb", buffering=0) as pipe:
        while True:
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return None
            some = pipe.read(1 << 16)
            if not some:
                return reply
            reply += some


class Listener:
    """A channel on which the platform requests one call and then ends."""

    def __init__(self, load: dict[str, Any]) -> None:
        import socket

        from snowmelt._runtime import frames

        ours, theirs = socket.socketpair()
        self._waiting = [theirs]
        self._frames, self._platform = frames, frames.Connection(ours)
        self._platform.send_json(frames.LOAD, load)
        self._platform.send_json(frames.CALL, {"invocation": "", "event": None})

    def accept(self) -> tuple[Any, Any]:
        """The connection; at the second call, the end of the process."""
        if self._waiting:
            return self._waiting.pop(), None
        self._platform.expect(self._frames.READY)
        self._platform.expect(self._frames.RETURN)
        raise SystemExit(0)


def run(imported: list[str]) -> None:
    """Runs the steps of a preforked child, and those of its first request."""
    text = "".join(f"import {name}\n" for name in imported)
    text += "\n\ndef handler(event):\n    answer = [event]\n    return answer\n"
    with open(FILE, "w") as file:
        json.dump({"kind": "source", "file": "handler.py", "text": text}, file)
    load = {"mode": "function", "code": FILE, "function": "handler", "on_error": "raise"}
    listener = Listener(load)
    enter.warm_up()
    sys.modules[enter.RUNTIME].start_first_thread(listener)
    enter.ready.append(listener)
    # All values differ from the zygote's.
    environment = {"SNOWMELT_LOAD_AHEAD": FILE, **{f"PROBE_{name}": name for name in os.environ}}
    entries = [f"e{name}={value}" for name, value in environment.items()]
    entries += ["p/run/snowmelt/none", f"c{enter.RUNTIME}:main"]
    try:
        if enter.begin("\0".join(entries).encode()) != 0:
            raise RuntimeError("a probe child was not served")
    finally:
        os.unlink(FILE)


def is_writable(rights: str, _inode: str, _name: list[str]) -> bool:
    return rights == "rw-p"


def is_anonymous(rights: str, inode: str, name: list[str]) -> bool:
    return rights == "rw-p" and inode == "0" and name[:1] != ["[stack]"]


def is_file(rights: str, inode: str, _name: list[str]) -> bool:
    return rights in ("r--p", "r-xp") and inode != "0"


def mappings(unused: Mapping, wanted: Callable[[str, str, list[str]], bool]) -> list[Mapping]:
    """Mappings of this process of one kind, as (start, end), without the addresses in `unused`."""
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
    """Of these mappings, the pages that this process has copied, and present pages of files."""
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


def runs(table: int, mapping: Mapping, wanted: int, mask: int) -> list[tuple[int, int]]:
    """Runs of pages whose bits under the mask `mask` are `wanted`, as (address, bytes)."""
    start, end = mapping
    found: list[tuple[int, int]] = []
    for first in range(start, end, PART):
        count = (min(first + PART, end) - first) // PAGE
        entries = os.pread(table, count * 8, first // PAGE * 8)
        if not entries.strip(b"\0"):
            continue
        for place, entry in enumerate(memoryview(entries).cast("Q")):
            if entry & mask != wanted:
                continue
            address = first + place * PAGE
            if found and sum(found[-1]) == address:
                found[-1] = (found[-1][0], found[-1][1] + PAGE)
            else:
                found.append((address, PAGE))
    return found
