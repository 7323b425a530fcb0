"""Networks of bursts for a server that has given up root, by a daemon with the rights for them."""

import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PYTHON, Snowmelt, descendants, wait_for
from taken_descriptors import send, stolen

# A number without a name in /etc/passwd.
SERVER = 64700

TALK = """
import snowmelt as sm

def talk(rank):
    import socket, time
    job = sm.job()
    listener = job.listen(7000)
    peer = job.peers[(job.rank + 1) % job.size]
    for _ in range(400):
        try:
            connection = socket.create_connection((peer, 7000), timeout=20)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    connection.sendall(str(job.rank).encode())
    heard = listener.accept()[0].recv(9).decode()
    try:
        socket.create_server((peer, 7001))
    except OSError as refused:
        return heard, refused.errno
    return heard, 0

def wait(rank):
    import time
    time.sleep(120)

"""


@pytest.fixture
def server(alone: Snowmelt) -> Iterator[Snowmelt]:
    yield alone
    alone.run("down")


def up(server: Snowmelt, **settings: str) -> None:
    server.folder.chmod(0o755)
    server.environment = {"SNOWMELT_USER": str(SERVER)} | settings
    server.run("up").succeeded()


def status(server: Snowmelt) -> dict[str, Any]:
    return dict(json.loads(server.run("status", "-o", "json").succeeded().out))


def addresses() -> list[str]:
    """The devices of the host, but for those of bursts, which go a moment after them."""
    shown = subprocess.run(["ip", "-o", "-d", "addr"], check=True, capture_output=True, text=True)
    return [line for line in shown.stdout.splitlines() if "snm" not in line]


def devices_of_bursts() -> list[str]:
    shown = subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True)
    return [line for line in shown.stdout.splitlines() if "snm" in line]


def network_daemon(server: int) -> int:
    [daemon] = [pid for pid, line in descendants(server).items() if "internal networks" in line]
    return daemon


@pytest.mark.parametrize("method", ["auto", "notifier"])
def test_functions_of_a_burst_communicate(server: Snowmelt, method: str) -> None:
    up(server, SNOWMELT_NETWORK_ENFORCEMENT=method)
    code = TALK + "print(sm.burst(talk, 3, network='job', progress=False))"
    expected = [[str((rank - 1) % 3), errno.EADDRNOTAVAIL] for rank in range(3)]
    answered = server.python(code).succeeded().out
    assert json.loads(answered.replace("'", '"').replace("(", "[").replace(")", "]")) == expected
    # Without the daemon nobody holds the functions to their addresses: they end, and say why.
    waiting = subprocess.Popen(
        [sys.executable, "-c", TALK + "sm.burst(wait, 2, network='job', progress=False)"],
        env=server.environ() | {"PYTHONPATH": str(PYTHON)},
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = status(server)["pid"]
    wait_for("the functions", lambda: status(server)["instances"][0] == 2)
    os.kill(network_daemon(pid), signal.SIGKILL)
    said = waiting.communicate(timeout=60)[1]
    assert waiting.returncode != 0 and "SM-0601" in said, said
    assert server.python(code).succeeded().out == answered
    server.run("down").succeeded()
    # The kernel removes a namespace with its devices a moment after its last process.
    wait_for("the end of the devices", lambda: not devices_of_bursts())


def test_the_daemon_of_networks_changes_no_namespace_in_use(server: Snowmelt) -> None:
    """By the server's own end of the daemon's socket."""
    up(server)
    pid = status(server)["pid"]
    code = TALK + "print(len(sm.burst(talk, 2, network='job', progress=False)))"
    server.python(code).succeeded()
    daemon = network_daemon(pid)
    before = addresses()
    control = stolen(pid, daemon)
    name = f"snowmelt-{pid}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "add", "name", "a", "type", "veth"], check=True)
        for path in ("/proc/self/ns/net", f"/run/netns/{name}", "/proc/self/ns/mnt", "/dev/null"):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with Path(path).open() as namespace:
                send(control, b"null", [namespace.fileno(), theirs.fileno()])
            theirs.close()
            for request in (
                b'"Configure"',
                b'"IsUnused"',
                b'"IsUnused"',
                b'"Report"',
                b'{"Attach":{}}',
                b"x",
            ):
                with contextlib.suppress(BrokenPipeError):
                    send(ours, request, [])
                    assert select.select([ours], [], [], 20)[0], "no answer"
                    answered = ours.recv(4096)
                    assert b'"Ok"' not in answered, (path, request, answered)
        # Packets that no server sends.
        for odd in (b"null", b"[1]", b"x"):
            with contextlib.suppress(BrokenPipeError):
                send(control, odd, [])
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
        control.close()
    assert addresses() == before
    # Whatever became of the daemon, the next job has a network.
    assert server.python(code).succeeded().out == "2\n"
