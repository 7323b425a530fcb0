"""A server that gives up root: who its processes are, and what it can still do."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Snowmelt, descendants, wait_for
from taken_descriptors import PidFd, answer, copied, send, sockets, stolen

# Numbers without a name in /etc/passwd.
SERVER, ADA, MEMBERS = 64700, 64501, 64321

CODE = """
import os, time

def handler(event):
    time.sleep(event.get("seconds", 0))
    return {"uid": os.getuid(), "n": event["n"]}
"""

NONE = "0000000000000000"
# CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN.
NETWORKS = f"{1 << 12 | 1 << 13 | 1 << 19 | 1 << 21:016x}"


class Site:
    """A server that has become another user, and tables of several users."""

    def __init__(self, server: Snowmelt) -> None:
        self.server = server
        self.data = server.folder / "data"
        self.data.mkdir(mode=0o755)
        status = json.loads(server.run("status", "-o", "json").succeeded().out)
        self.pid: int = status["pid"]

    def file(self, name: str, owner: int, mode: int) -> Path:
        path = self.data / name
        path.write_text("x\n1\n")
        os.chown(path, owner, owner)
        path.chmod(mode)
        return path

    def call(self, name: str, event: str, *more: str) -> dict[str, int]:
        done = self.server.run("fn", "call", name, "--data", event, *more).succeeded()
        return dict(json.loads(done.out))

    def count(self, of: Path, uid: int) -> str:
        """The number of rows that a user sees, or what is said instead."""
        place = {"HOME": "/nonexistent"}
        place["SNOWMELT_SOCKET"] = str(self.server.folder / "state/snowmelt.sock")
        done = subprocess.run(
            [self.server.program, "sql", "-o", "csv", f"select count(*) n from '{of}'"],
            user=uid,
            group=MEMBERS,
            extra_groups=[],
            env=self.server.environ() | place,
            capture_output=True,
            text=True,
            cwd="/",
        )
        return done.stdout.split()[-1] if done.returncode == 0 else done.stderr

    def processes(self, word: str) -> list[int]:
        found = descendants(self.pid)
        brokers = [pid for pid, line in found.items() if "internal broker" in line]
        return [pid for pid, line in found.items() if f"internal {word}" in line] or brokers


def state(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture
def site(alone: Snowmelt) -> Iterator[Site]:
    alone.for_other_users()
    alone.environment = {"SNOWMELT_GROUP": str(MEMBERS), "SNOWMELT_USER": str(SERVER)}
    alone.run("up").succeeded()
    yield Site(alone)
    alone.run("down")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "f.py"
    path.write_text(CODE)
    return path


def test_each_process_has_the_rights_that_it_needs(site: Site, code: Path) -> None:
    site.server.run("fn", "deploy", "f", code).succeeded()
    assert site.call("f", '{"n":1}')["n"] == 1
    [broker] = site.processes("broker")
    server = state(site.pid)
    assert server["Uid"].split() == [str(SERVER)] * 4 and server["Gid"].split() == [str(SERVER)] * 4
    assert server["Groups"] == "" and server["NoNewPrivs"] == "1" and server["Seccomp"] == "2"
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert server[kind] == NONE, kind
    others = {pid: line for pid, line in descendants(site.pid).items() if pid != broker}
    for pid, line in others.items():
        found = state(pid)
        # The spawner is root; all that runs in sandboxes has users of its own.
        if "internal spawner" in line:
            assert found["Uid"].split()[0] == "0", line
            continue
        assert found["Seccomp"] == "2", line
        if "internal networks" in line:
            assert found["Uid"].split() == [str(SERVER)] * 4 and found["NoNewPrivs"] == "1"
            assert found["CapEff"] == found["CapPrm"] == NETWORKS
        else:
            assert found["Uid"].split()[0] not in ("0", str(SERVER)), line
    assert state(broker)["Uid"].split()[0] == "0"
    # What the server writes is its own.
    kept = site.server.folder / "state"
    assert {path.lstat().st_uid for path in kept.rglob("*")} == {SERVER}


def test_files_are_opened_for_who_asks(site: Site) -> None:
    of_root = site.file("root.csv", 0, 0o600)
    of_ada = site.file("ada.csv", ADA, 0o600)
    of_server = site.file("server.csv", SERVER, 0o600)
    of_all = site.file("all.csv", 0, 0o644)
    for path in (of_root, of_ada, of_server, of_all):
        assert site.count(path, 0) == "1", path
    for path in (of_ada, of_all):
        assert site.count(path, ADA) == "1", path
    for path in (of_root, of_server):
        assert "Permission denied" in site.count(path, ADA), path
    # A folder with many of them, several at a time.
    for index in range(50):
        site.file(f"many-{index}.csv", ADA, 0o600)
    assert site.count(site.data / "many-*.csv", ADA) == "50"
    assert "none-" in site.count(site.data / "none-*.csv", ADA)


def test_sandboxes_are_paused_killed_and_replaced(site: Site, code: Path) -> None:
    site.server.run("fn", "deploy", "f", code, "--timeout", "1s").succeeded()
    assert site.call("f", '{"n":1}')["n"] == 1
    late = site.server.run("fn", "call", "f", "--data", '{"n":2,"seconds":60}')
    assert late.code != 0 and late.report["code"] == "SM-0212", late.err
    # An idle instance is paused, and resumed by the next call.
    assert site.call("f", '{"n":3}')["n"] == 3
    lanes = site.processes("spawner")
    for lane in lanes:
        os.kill(lane, signal.SIGKILL)
    # A call that was on its way to them is lost, and says so.
    event = ("fn", "call", "f", "--data", '{"n":4}')
    wait_for("another spawner", lambda: site.server.run(*event).code == 0)
    assert not set(lanes) & set(site.processes("spawner"))
    query = "select count(*) as n from range(10)"
    assert json.loads(site.server.sql(query).succeeded().out) == {"n": 10}
    site.server.run("down").succeeded()


def test_a_server_ends_with_its_broker_and_starts_again(site: Site, code: Path) -> None:
    site.server.run("fn", "deploy", "f", code).succeeded()
    assert site.call("f", '{"n":1}')["n"] == 1
    [broker] = site.processes("broker")
    os.kill(broker, signal.SIGKILL)
    wait_for("the end of the server", lambda: not Path(f"/proc/{site.pid}").exists())
    log = (site.server.folder / "state/snowmelt.log").read_text()
    assert "the broker has ended" in log
    site.server.run("up").succeeded()
    assert site.call("f", '{"n":2}')["n"] == 2


def test_the_state_goes_to_root_by_hand_and_back_by_itself(site: Site, code: Path) -> None:
    site.server.run("fn", "deploy", "f", code).succeeded()
    site.server.run("down").succeeded()
    del site.server.environment["SNOWMELT_USER"]
    # Root trusts no packages of another user.
    site.server.run("up").succeeded()
    refused = site.server.run("fn", "call", "f", "--data", '{"n":1}')
    refused.failed_with("SM-0505", f"user {SERVER}", "chown")
    site.server.run("down").succeeded()
    subprocess.run(["chown", "-hR", "0", site.server.folder / "state"], check=True)
    site.server.run("up").succeeded()
    assert site.call("f", '{"n":1}')["n"] == 1
    site.server.run("down").succeeded()
    # Files of root are handed over again.
    site.server.environment["SNOWMELT_USER"] = str(SERVER)
    site.server.run("up").succeeded()
    assert site.call("f", '{"n":2}')["n"] == 2


UV = """#!/usr/bin/python3
# Takes the place of uv, which the server starts: what may a program of the server do?
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def tries(name, step):
    try:
        done = step()
        refused = done < 0 if isinstance(done, int) else False
        print(name, ctypes.get_errno() if refused else "done", file=report)
    except OSError as error:
        print(name, error.errno, file=report)
with open(open(sys.argv[0] + ".d/temporary").read() + "/report", "w") as report:
    tries("write", lambda: open(sys.argv[0] + ".d/file", "w"))
    tries("signal", lambda: os.kill(int(open(sys.argv[0] + ".d/victim").read()), signal.SIGTERM))
    tries("user namespace", lambda: libc.unshare(0x10000000))
    tries("io_uring", lambda: libc.syscall(425, 1, 0))
    tries("bpf", lambda: libc.syscall(321, 0, 0, 0))
    tries("keyring", lambda: libc.syscall(250, 0, -3, 1))
    tries("packets", lambda: socket.socket(17, 3))
    print("home", os.environ["HOME"] + os.environ.get("XDG_CONFIG_HOME", ""), file=report)
    print("end", file=report)
sys.exit(1)
"""


def test_a_program_of_the_server_is_confined(alone: Snowmelt, tmp_path: Path) -> None:
    """A program in the place of uv tries what any program of that user may do."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        outside = Path(name)
        outside.chmod(0o755)
        uv = outside / "uv"
        uv.write_text(UV)
        uv.chmod(0o755)
        place = outside / "uv.d"
        place.mkdir()
        os.chown(place, SERVER, SERVER)
        (place / "temporary").write_text(f"{outside}/tmp")
        victim = subprocess.Popen(["sleep", "600"], user=SERVER, group=SERVER)
        (place / "victim").write_text(str(victim.pid))
        code = tmp_path / "f.py"
        code.write_text(CODE)
        packages = tmp_path / "requirements.txt"
        packages.write_text("six\n")
        alone.for_other_users()
        temporary = outside / "tmp"
        temporary.mkdir()
        temporary.chmod(0o777)
        alone.environment = {
            "SNOWMELT_USER": str(SERVER),
            "SNOWMELT_UV": str(uv),
            "TMPDIR": str(temporary),
            "XDG_CONFIG_HOME": "/root/.config",
        }
        try:
            # What it may do outside of the server.
            free = subprocess.run([uv], user=SERVER, group=SERVER)
            assert free.returncode == 1
            found = report(temporary)
            assert found["write"] == found["signal"] == found["user namespace"] == "done"
            assert victim.wait(20) == -signal.SIGTERM
            victim = subprocess.Popen(["sleep", "600"], user=SERVER, group=SERVER)
            (place / "victim").write_text(str(victim.pid))
            (temporary / "report").unlink()
            alone.run("up").succeeded()
            deployed = alone.run("fn", "deploy", "f", code, "--requirements", packages)
            assert (temporary / "report").exists(), deployed.err
            found = report(temporary)
            refused = str(errno.EPERM)
            assert found["write"] == str(errno.EACCES) and found["signal"] == refused
            for name in ("user namespace", "io_uring", "bpf", "keyring"):
                assert found[name] in (refused, str(errno.ENOSYS)), name
            # Of the user, whom the folders of root are closed to.
            assert found["home"] == "/"
            assert found["packets"] == str(errno.EAFNOSUPPORT)
            assert victim.poll() is None
        finally:
            alone.run("down")
            victim.kill()
            victim.wait()


def report(folder: Path) -> dict[str, str]:
    lines = (folder / "report").read_text().splitlines()
    assert lines[-1] == "end"
    return dict(line.rsplit(" ", 1) for line in lines[:-1])


def test_who_is_named_wrongly_is_refused(alone: Snowmelt) -> None:
    alone.environment = {"SNOWMELT_USER": "no-such-user"}
    alone.run("up").failed_with("SM-0110", "no-such-user", "useradd")


def owner_by_doctor(server: Snowmelt) -> tuple[dict[str, str], dict[str, str]]:
    """The rows of the server's user and of the state folder."""
    rows = {row["name"]: row for row in json.loads(server.run("doctor", "-o", "json").out)}
    return rows["user of the server"], rows["state folder"]


def test_the_doctor_says_who_the_server_is(alone: Snowmelt) -> None:
    alone.for_other_users()
    alone.environment = {"SNOWMELT_USER": "root"}
    alone.run("up").succeeded()
    user, state = owner_by_doctor(alone)
    assert user["status"] == "warn" and "SNOWMELT_USER=snowmelt" in user["mend"]
    assert state["status"] == "ok"
    alone.run("down").succeeded()
    alone.environment = {"SNOWMELT_USER": str(SERVER)}
    alone.run("up").succeeded()
    # Who asks has not the settings of the service.
    alone.environment = {"SNOWMELT_USER": "root"}
    user, state = owner_by_doctor(alone)
    assert user["status"] == state["status"] == "ok"
    assert str(SERVER) in user["found"] and str(SERVER) in state["found"]
    alone.run("down").succeeded()


READS = """
import os
import snowmelt as sm

@sm.udf
def add(n: int) -> int:
    with open("number.txt") as file:
        return n + int(file.read())
"""


def test_a_server_of_root_gives_up_root_with_all_that_it_kept(
    alone: Snowmelt, code: Path, tmp_path: Path
) -> None:
    """What an upgrade of the package does: packages, files of two names, keys, the audit."""
    alone.for_other_users()
    (tmp_path / "number.txt").write_text("40")
    (tmp_path / "add.py").write_text(READS)
    udf = ("udf", "add", tmp_path / "add.py", "--file", tmp_path / "number.txt")
    tokens = alone.folder / "state/tokens"
    audit = tmp_path / "log/audit"
    # Tools that this user can run: those of the tests may be below the home folder of root.
    uv = shutil.copy(shutil.which("uv") or "uv", alone.folder / "bin")
    tools = {"SNOWMELT_UV": str(uv), "SNOWMELT_PYTHON": os.path.realpath(sys.executable)}
    kept = {"SNOWMELT_AUDIT_FOLDER": str(audit)} | tools
    alone.environment = {"SNOWMELT_USER": "root"} | kept
    # Tests have folders that only root can enter.
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    alone.run("up").succeeded()
    alone.run("fn", "deploy", "f", code).succeeded()
    alone.run(*udf).succeeded()
    alone.run("token", "new", "acme", "--tls-tokens", tokens).succeeded()
    assert alone.rows("select add(2) n") == [{"n": 42}]
    alone.run("down").succeeded()
    state = alone.folder / "state"
    assert any(path.lstat().st_nlink > 1 for path in state.rglob("*") if path.is_file())
    (tmp_path / "log").chmod(0o755)
    lines = len((audit / "audit.jsonl").read_text().splitlines())
    alone.environment = {"SNOWMELT_USER": str(SERVER)} | kept
    for start in range(2):
        alone.run("up").succeeded()
        assert {path.lstat().st_uid for path in state.rglob("*")} == {SERVER}
        event = f'{{"n":{start}}}'
        done = alone.run("fn", "call", "f", "--data", event).succeeded()
        assert json.loads(done.out)["n"] == start
        assert alone.rows("select add(2) n") == [{"n": 42}]
        # The same files for another version, and what root does beside the server.
        (tmp_path / "add.py").write_text(READS + f"# {start}\n")
        alone.run(*udf).succeeded()
        assert alone.rows("select add(3) n") == [{"n": 43}]
        assert alone.rows("select add(4) n", "--embedded", *of(tmp_path)) == [{"n": 44}]
        alone.run("token", "new", "acme", "--tls-tokens", tokens).succeeded()
        alone.run("down").succeeded()
    assert tokens.stat().st_uid == SERVER and len(tokens.read_text().splitlines()) == 3
    alone.run("audit", "verify", audit).succeeded()
    assert len((audit / "audit.jsonl").read_text().splitlines()) > lines


def of(folder: Path) -> tuple[object, ...]:
    """The options of a function that is not registered."""
    return ("--udf", folder / "add.py", "--udf-file", folder / "number.txt")


def test_a_server_that_was_taken_over_asks_its_broker_in_vain(site: Site) -> None:
    """By the server's own end of the broker's socket."""
    victim = subprocess.Popen(["sleep", "600"])
    broker = stolen(site.pid, site.processes("broker")[0])
    try:
        kill = (3).to_bytes(4, "little") + bytes(4)
        with PidFd(victim.pid) as process, PidFd(1) as init:
            for descriptors in ([process], [init], [process, init], []):
                send(broker, kill, descriptors)
        # Each other request is answered: refused.
        for request in (b"x", b"x" * 7, bytes(8), b"\xff" * 8):
            send(broker, request, [])
            assert answer(broker) != 0, request
        for operation, argument in (
            (1, 0),
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 0),
            (4, 1 << 20),
            (6, 0),
            (7, 0),
        ):
            send(broker, operation.to_bytes(4, "little") + argument.to_bytes(4, "little"), [])
            assert answer(broker) != 0, (operation, argument)
        # Files are opened as the user of a connection to the server, which the kernel names. A
        # socket at which root listens, or a pair, says nothing of a user.
        for connection in not_accepted(site.server.folder, site.pid):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            send(broker, (2).to_bytes(4, "little") + bytes(4), [theirs.fileno(), connection])
            assert answer(broker) == 0
            theirs.close()
            assert answer(ours) != 0
            assert ours.recv(1) == b""
        with PidFd(victim.pid) as process:
            send(broker, (6).to_bytes(4, "little") + bytes(4), [process])
            assert answer(broker) == errno.EPERM
        assert victim.poll() is None
        assert site.count(site.file("all.csv", 0, 0o644), ADA) == "1", "the broker still serves"
    finally:
        victim.kill()
        victim.wait()
        broker.close()


def test_a_warm_call_and_a_burst_work(site: Site, code: Path) -> None:
    program = (
        "import snowmelt as sm\n"
        "print(sm.map(lambda n: n * n, range(8), progress=False))\n"
        "print(sm.burst(lambda rank: rank, 4, progress=False))\n"
    )
    done = site.server.python(program).succeeded()
    assert done.out == "[0, 1, 4, 9, 16, 25, 36, 49]\n[0, 1, 2, 3]\n"


def not_accepted(folder: Path, server: int) -> Iterator[int]:
    """What is no connection of a user to the server."""
    # The server's own listeners: root has made them.
    listeners = subprocess.run(["ss", "-xlH"], check=True, capture_output=True, text=True).stdout
    inodes = {row.split()[5] for row in listeners.splitlines() if str(folder) in row}
    own = [number for inode, number in sockets(server).items() if inode in inodes]
    assert len(own) >= 2, listeners
    for number in own:
        yield copied(server, number)
    with Path("/dev/null").open() as file:
        yield file.fileno()
    pair = socket.socketpair()
    yield pair[0].fileno()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(folder / "root.sock"))
        listener.listen()
        client.connect(str(folder / "root.sock"))
        yield client.fileno()
        accepted = listener.accept()[0]
        yield accepted.fileno()
    door = folder / "state/snowmelt.sock"
    # The server's own socket, of which root is the listener.
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(door))
        yield client.fileno()
    # Sockets of root with the name of the door, which the server may exchange.
    aside = door.with_suffix(".aside")
    door.rename(aside)
    try:
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
            listener.bind(str(folder / "other.sock"))
            listener.listen()
            client.bind(str(door))
            client.connect(str(folder / "other.sock"))
            yield client.fileno()
        door.unlink()
        pair = socket.socketpair()
        pair[0].bind(str(door))
        yield pair[0].fileno()
    finally:
        door.unlink(missing_ok=True)
        aside.rename(door)
