"""Descriptors that are taken from a process, as who has taken it over would use them."""

import array
import contextlib
import ctypes
import os
import select
import socket
import subprocess
from pathlib import Path

PIDFD_GETFD = 438


class PidFd:
    def __init__(self, pid: int) -> None:
        self.number = os.pidfd_open(pid)

    def __enter__(self) -> int:
        return self.number

    def __exit__(self, *_: object) -> None:
        os.close(self.number)


def send(to: socket.socket, request: bytes, descriptors: list[int]) -> None:
    rights = array.array("i", descriptors)
    more = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
    to.sendmsg([request], more)


def answer(of: socket.socket) -> int:
    # Not by a timeout of the socket, which would make the server's own end non-blocking.
    assert select.select([of], [], [], 20)[0], "no answer"
    return int.from_bytes(of.recv(4), "little")


def stolen(server: int, helper: int) -> socket.socket:
    """A copy of the socket that leads from the server to a process that it has started."""
    listed = subprocess.run(["ss", "-xH"], check=True, capture_output=True, text=True).stdout
    # Type, state, two queues, address and inode, address and inode of the other end.
    rows = [line.split() for line in listed.splitlines()]
    peers = {row[5]: row[7] for row in rows if len(row) > 7 and row[0] == "u_seq"}
    of_server = sockets(server)
    # The first one: later ones are for single requests.
    theirs = min((number, inode) for inode, number in sockets(helper).items() if inode in peers)
    return socket.socket(fileno=copied(server, of_server[peers[theirs[1]]]))


def copied(of: int, number: int) -> int:
    """A copy of a descriptor of another process."""
    get = ctypes.CDLL(None, use_errno=True).syscall
    with PidFd(of) as process:
        copy = int(get(PIDFD_GETFD, process, number, 0))
    assert copy >= 0, os.strerror(ctypes.get_errno())
    return copy


def sockets(pid: int) -> dict[str, int]:
    """The sockets of a process, by inode, with their descriptors."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            kind, _, inode = str(entry.readlink()).partition(":")
            if kind == "socket":
                found[inode.strip("[]")] = int(entry.name)
    return found
