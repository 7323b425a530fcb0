"""Access to a server and its state, independent of the umask; and limits of unauthenticated
connections."""

import contextlib
import http.client
import json
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Snowmelt, wait_for

from common.paths import SNOWMELT

STRANGER = 65534
MEMBERS = 64321
TOKEN = "0123456789abcdef0123"

CONNECT = """import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    connection.sendall(b"GET /v1/status HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n")
    print(connection.recv(100).decode().splitlines()[0])
"""
OPEN = """import fcntl, sys
fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def as_user(group: int, program: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/usr/bin/python3", "-c", program, str(path)],
        user=STRANGER,
        group=group,
        extra_groups=[],
        capture_output=True,
        text=True,
        cwd="/",
    )


@pytest.fixture
def up_with_umask_0(alone: Snowmelt, tmp_path: Path) -> Iterator[Snowmelt]:
    # Other users can traverse the parent folder, as /var/lib.
    alone.folder.chmod(0o755)
    command = f"umask 0; exec {SNOWMELT} up"
    subprocess.run(["sh", "-c", command], env=alone.environ(), check=True, cwd=alone.folder)
    file = tmp_path / "f.py"
    file.write_text("def handler(event): print(event)\n")
    alone.run("fn", "deploy", "f", file, "--env", "SECRET=x").succeeded()
    alone.run("fn", "call", "f").succeeded()
    yield alone
    alone.run("down")


def test_file_modes_do_not_depend_on_the_umask(up_with_umask_0: Snowmelt) -> None:
    state = up_with_umask_0.folder / "state"
    assert mode(state) == 0o700
    for name in ("state.redb", "server.lock", "snowmelt.sock", "snowmelt.log"):
        assert mode(state / name) == 0o600, name
    assert mode(state / "logs/f") == 0o700
    assert mode(state / "logs/f/log.jsonl") == 0o600
    for name in ("state.redb", "server.lock"):
        refused = as_user(STRANGER, OPEN, state / name)
        assert "PermissionError" in refused.stderr, refused
    assert "PermissionError" in as_user(STRANGER, CONNECT, state / "snowmelt.sock").stderr
    written = [path for path in state.rglob("*") if not path.is_symlink() and mode(path) & 0o022]
    assert not written, "others may write to what the server made"


def test_members_of_the_group_may_use_the_server(alone: Snowmelt) -> None:
    alone.folder.chmod(0o755)
    alone.environment = {"SNOWMELT_GROUP": str(MEMBERS)}
    alone.run("up").succeeded()
    try:
        state = alone.folder / "state"
        found = (state / "snowmelt.sock").stat()
        assert (mode(state / "snowmelt.sock"), found.st_gid) == (0o660, MEMBERS)
        assert "200 OK" in as_user(MEMBERS, CONNECT, state / "snowmelt.sock").stdout
        assert "PermissionError" in as_user(STRANGER, CONNECT, state / "snowmelt.sock").stderr
        assert "PermissionError" in as_user(MEMBERS, OPEN, state / "state.redb").stderr
        # Where another user may execute it: the builds may be below the home folder of root.
        program = shutil.copy(SNOWMELT, alone.folder)
        counted = subprocess.run(
            [program, "du"],
            user=STRANGER,
            group=MEMBERS,
            extra_groups=[],
            env=alone.environ() | {"HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            cwd="/",
        )
        assert counted.returncode == 3 and "SM-0505" in counted.stderr, counted
        assert "snowmelt prune" in counted.stderr
        # A command of root does not change the access of members.
        alone.environment = {}
        alone.run("fn", "ls", "--embedded")
        assert "200 OK" in as_user(MEMBERS, CONNECT, state / "snowmelt.sock").stdout
    finally:
        alone.run("down")


def test_a_missing_group_is_refused(alone: Snowmelt) -> None:
    alone.environment = {"SNOWMELT_GROUP": "no-such-group-e2e"}
    alone.run("up").failed_with("SM-0110", "no-such-group-e2e", "groupadd")


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_unauthenticated_connections_are_bounded_and_block_no_host(
    alone: Snowmelt, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    listen = f"127.0.0.1:{port}"
    alone.run("up", "--listen", listen, "--plaintext", "--token-file", token).succeeded()
    try:
        server = json.loads(alone.run("status", "-o", "json").succeeded().out)["pid"]
        before = descriptors(server)
        with contextlib.ExitStack() as silent:
            for _ in range(600):
                connection = socket.create_connection(("127.0.0.1", port))
                silent.enter_context(connection)
            few = lambda: descriptors(server) - before <= 140  # noqa: E731
            wait_for("most connections to be closed", few)
            host = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            leave = {"authorization": f"Bearer {TOKEN}"}
            host.request("DELETE", "/v1/hosts/none", headers=leave)
            assert host.getresponse().status == 204
            alone.run("status").succeeded()
            unauthenticated = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            unauthenticated.request("DELETE", "/v1/hosts/none")
            refused = unauthenticated.getresponse()
            assert (refused.status, refused.headers["connection"]) == (401, "close")
    finally:
        alone.run("down")
