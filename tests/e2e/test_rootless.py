"""The platform of an ordinary user, without any help of root: queries, functions, maps, a server.

Each command runs as a user of the machine that owns its home folder and nothing else."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import PYTHON, Result, descendants, short_folder, wait_for

from common.paths import SNOWMELT

USER, OTHER = 64610, 64611
NEW_USER_NAMESPACE = 0x10000000
SET_DUMPABLE = 4


class User:
    """An ordinary user with a home folder, and programs that everybody may execute."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.programs = folder / "bin"
        self.programs.mkdir(mode=0o755)
        # Where another user may execute it: the builds may be below the home folder of root.
        for program in ("snowmelt", "snowmelt-query"):
            shutil.copy(SNOWMELT.with_name(program), self.programs)
        shutil.copytree(PYTHON / "snowmelt", folder / "sdk/snowmelt")
        self.sdk, self.python = folder / "sdk", folder / "venv/bin/python"
        self.home, self.runtime = folder / "home", folder / "runtime"
        for own in (self.home, self.runtime):
            own.mkdir(mode=0o700)
            os.chown(own, USER, USER)
        self.environment: dict[str, str] = {}

    def environ(self) -> dict[str, str]:
        own = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "PYTHONPATH": str(self.sdk),
            "SNOWMELT_PYTHON": str(self.python),
            "SNOWMELT_SCAN_TASK": "0",
        }
        return own | self.environment

    def start(self, *command: object, **options: Any) -> subprocess.Popen[str]:
        named: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": [], "cwd": self.home}
        return subprocess.Popen(
            [str(word) for word in command],
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **(named | options),
        )

    def finish(self, process: subprocess.Popen[str]) -> Result:
        out, err = process.communicate(timeout=120)
        return Result(process.returncode, out, err)

    def run(self, *arguments: object, **options: Any) -> Result:
        program = self.programs / "snowmelt"
        return self.finish(self.start(program, "--errors", "json", *arguments, **options))

    def sql(self, query: str, *arguments: object) -> list[dict[str, Any]]:
        done = self.run("sql", query, "-o", "json", "--workers", 2, *arguments).succeeded()
        return [json.loads(line) for line in done.out.splitlines()]

    def file(self, name: str, text: str) -> Path:
        path = self.home / name
        path.write_text(text)
        os.chown(path, USER, USER)
        path.chmod(0o600)
        return path

    def left(self) -> list[Path]:
        """What is left of a platform in the run folder."""
        return list(self.runtime.rglob("snowmelt/*"))


@pytest.fixture
def user() -> Iterator[User]:
    with short_folder() as folder:
        # The environment of the tests may be below the home folder of root, too.
        environment = folder / "venv"
        environment.mkdir()
        subprocess.run(["mount", "--bind", sys.prefix, environment], check=True)
        try:
            yield User(folder)
        finally:
            subprocess.run(["umount", environment], check=True)


HOSTILE = """import os, signal, socket, subprocess, sys, time

def tried(what):
    try:
        return what() or "done"
    except Exception as error:
        return type(error).__name__

def connect(path):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)

def handler(event):
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return {
        "lives": left.poll() is None,
        "home": tried(lambda: os.listdir(event["home"])),
        "secret": tried(lambda: open(event["secret"]).read()),
        "socket": tried(lambda: connect(event["socket"])),
        "signals": [tried(lambda pid=pid: os.kill(pid, 0)) for pid in event["pids"]],
        "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit())[-1] < 1000,
        "roots": [tried(lambda: os.listdir(f"/proc/{pid}/root/")) for pid in event["pids"]],
        "namespace": tried(lambda: os.unshare(0x10000000) if hasattr(os, "unshare") else 1 // 0),
        "memfd": tried(lambda: os.memfd_create("x")),
        "zero": os.path.exists("/dev/zero"),
        "ids": [os.getuid(), os.getgid()],
        "capabilities": [
            line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")
        ],
    }
"""

LARGE = """def handler(event):
    kept = []
    while True:
        kept.append(bytearray(8 << 20))
        for place in range(0, 8 << 20, 4096):
            kept[-1][place] = 1
"""

MANY = """import os, time

def handler(event):
    made = 0
    try:
        while made < 5000:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            made += 1
    except OSError as error:
        return made
    return made
"""

SCRATCH = """import time

def handler(event):
    with open("/tmp/large", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            # It may be full before the lane has looked.
            time.sleep(600)
"""


def processes(words: str) -> list[Path]:
    """Those of the machine with these words in their command line."""

    def has(folder: Path) -> bool:
        try:
            return words.encode() in (folder / "cmdline").read_bytes()
        except OSError:
            return False

    return [folder for folder in Path("/proc").iterdir() if folder.name.isdigit() and has(folder)]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def of_root(pids: dict[int, str]) -> dict[int, str]:
    """Those processes with a number of root in any of their users and groups."""
    found = {}
    for pid, line in pids.items():
        try:
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        numbers = [row.split()[1:] for row in status if row.startswith(("Uid:", "Gid:"))]
        if any("0" in row for row in numbers):
            found[pid] = line
    return found


def test_the_first_query_a_table_and_a_function(user: User) -> None:
    assert user.sql("select 1 as x", "--embedded") == [{"x": 1}]
    path = user.home / "numbers.parquet"
    pq.write_table(pa.table({"n": list(range(1000))}), path)
    os.chown(path, USER, USER)
    path.chmod(0o600)
    query = f"select sum(n) as s, count(*) as c from '{path}'"
    assert user.sql(query) == [{"s": 499500, "c": 1000}]
    code = "import snowmelt as sm\n\n@sm.udf\ndef twice(x: int) -> int:\n    return 2 * x\n"
    file = user.file("udfs.py", code)
    query = f"select sum(twice(n)) as s from '{path}'"
    assert user.sql(query, "--udf", file) == [{"s": 999000}]
    # State and run folder are where the user's other programs have theirs.
    assert (user.home / ".local/state/snowmelt").stat().st_uid == USER
    assert not user.left()


def test_a_map_from_python(user: User) -> None:
    program = (
        "import snowmelt as sm\n"
        "def square(x: int) -> int:\n    return x * x\n"
        "if __name__ == '__main__':\n    print(sum(sm.map(square, range(20))))\n"
    )
    done = user.finish(user.start(user.python, user.file("map.py", program))).succeeded()
    assert done.out.strip() == "2470"
    assert not user.left()


@pytest.fixture
def up(user: User) -> Iterator[User]:
    user.run("up").succeeded()
    yield user
    user.run("down")
    assert not user.left()


def server_of(user: User) -> int:
    status = json.loads(user.run("status", "-o", "json").succeeded().out)
    return int(status["pid"])


def deploy(user: User, name: str, code: str, *options: object) -> None:
    user.run("fn", "deploy", name, user.file(f"{name}.py", code), *options).succeeded()


def test_a_function_is_deployed_and_called(up: User) -> None:
    deploy(up, "f", "def handler(event):\n    return event['n'] + 1\n")
    assert up.run("fn", "call", "f", "--data", '{"n":1}').succeeded().out.strip() == "2"
    server = server_of(up)
    below = descendants(server)
    assert len(below) >= 3, below
    assert not of_root(below | {server: "server"})


def test_hostile_code_reaches_nothing_of_its_user(up: User) -> None:
    secret = up.file("secret", "of the user")
    server = server_of(up)
    event = {
        "home": str(up.home),
        "secret": str(secret),
        "socket": str(up.home / ".local/state/snowmelt/snowmelt.sock"),
        "pids": [server, *list(descendants(server))[:3]],
    }
    deploy(up, "hostile", HOSTILE)
    done = up.run("fn", "call", "hostile", "--data", json.dumps(event)).succeeded()
    found = json.loads(done.out)
    assert found["home"] == found["secret"] == found["socket"] == "FileNotFoundError", found
    missing = {"ProcessLookupError", "FileNotFoundError"}
    # The numbers of the host mean other processes there, or none.
    assert all(one in missing for one in found["signals"] + found["roots"]) or found["processes"]
    assert found["memfd"] == "OSError" and not found["zero"], found
    assert found["namespace"] != "done", found
    assert found["ids"] == [1000, 1000]
    assert set(found["capabilities"]) == {"0" * 16}
    assert Path(f"/proc/{server}").exists(), "the server lives"
    assert found["lives"]
    up.run("fn", "rm", "hostile").succeeded()
    wait_for("the end of what the function left", lambda: not processes("sleep\x00600"))


@pytest.mark.parametrize("code", [LARGE, SCRATCH])
def test_memory_above_the_limit_ends_the_function(up: User, code: str) -> None:
    deploy(up, "large", code, "--memory", "128MiB", "--scratch", "1GiB")
    failed = up.run("fn", "call", "large")
    failed.failed_with("SM-0213", "128 MiB")
    # The next call has a new sandbox, and so has another function.
    deploy(up, "small", "def handler(event):\n    return 1\n")
    assert up.run("fn", "call", "small").succeeded().out.strip() == "1"


def test_processes_above_the_limit_are_refused(up: User) -> None:
    deploy(up, "many", MANY, "--pids", 20, "--timeout", "30s")
    made = up.run("fn", "call", "many")
    assert (made.code != 0 and "SM-0214" in made.err) or 0 < int(made.out) < 20, made


@pytest.mark.parametrize("kind", ["server", "spawner", "all"])
def test_each_process_may_be_killed(user: User, kind: str) -> None:
    user.run("up").succeeded()
    code = "import subprocess\n\ndef handler(event):\n    subprocess.run(['sleep', '601'])\n"
    deploy(user, "f", code)
    server = server_of(user)
    user.run("fn", "call", "f", "--async").succeeded()
    wait_for("a call", lambda: processes("sleep\x00601"))
    below = descendants(server)
    spawners = [pid for pid, line in below.items() if "internal spawner" in line]
    for pid in {"server": [server], "spawner": spawners, "all": [server, *spawners]}[kind]:
        os.kill(pid, signal.SIGKILL)
    if kind == "spawner":
        # Another one is started, and the server serves.
        deploy(user, "g", "def handler(event):\n    return 7\n")
        assert user.run("fn", "call", "g").succeeded().out.strip() == "7"
        user.run("down").succeeded()
    wait_for("the end of all processes", lambda: not any(map(lives, below)))
    assert not processes("sleep\x00601")
    # What the killed one has left is removed by the next start.
    assert user.sql("select 2 as x", "--embedded") == [{"x": 2}]
    assert not user.left()


def test_the_server_of_a_user_serves_nobody_else(up: User) -> None:
    socket = up.home / ".local/state/snowmelt/snowmelt.sock"
    # Root may open the socket, and is no one that the server could tell from others.
    asked = up.run("fn", "ls", "--server", socket, user=0, group=0, cwd="/")
    asked.failed_with("SM-0530", "serves this user only")
    refused = up.run("fn", "ls", "--server", socket, user=OTHER, group=OTHER, cwd="/")
    assert refused.code != 0 and "SM-0530" not in refused.err


def test_what_needs_root_says_so(up: User) -> None:
    deploy(up, "job", "def handler(event):\n    return 1\n")
    done = up.run("fn", "burst", "job", "-n", 2, "--network")
    done.failed_with("SM-0530", "needs root", "sudo snowmelt up")
    up.environment = {"SNOWMELT_STATE": str(up.home / "other"), "SNOWMELT_GROUP": str(USER)}
    up.run("up").failed_with("SM-0530", "needs root")
    up.environment = {}


def refuse_namespaces() -> None:
    """Enters a user namespace in which there may be no other one."""
    system = ctypes.CDLL(None, use_errno=True)
    # After its user has changed, the files of the process in /proc are root's until then.
    system.prctl(SET_DUMPABLE, 1, 0, 0, 0)
    if system.unshare(NEW_USER_NAMESPACE) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for file, text in (
        ("/proc/self/setgroups", "deny"),
        ("/proc/self/uid_map", f"{USER} {USER} 1"),
        ("/proc/self/gid_map", f"{USER} {USER} 1"),
        ("/proc/sys/user/max_user_namespaces", "0"),
    ):
        Path(file).write_text(text)


def test_without_user_namespaces_the_remedy_is_named(user: User) -> None:
    done = user.run("sql", "select 1", "--embedded", preexec_fn=refuse_namespaces)
    done.failed_with("SM-0530", "sudo sysctl -w user.max_user_namespaces=")
    assert not (user.home / ".local").exists()
    checked = user.run("doctor", "-o", "json", preexec_fn=refuse_namespaces)
    rows = {row["name"]: row for row in json.loads(checked.out)}
    assert checked.code == 2 and rows["user namespace"]["status"] == "fail"
    assert "max_user_namespaces" in rows["user namespace"]["mend"]


def test_the_doctor_says_what_is_weaker(user: User) -> None:
    checked = user.run("doctor", "-o", "json")
    rows = {row["name"]: row for row in json.loads(checked.out)}
    assert rows["user namespace"]["status"] == "ok"
    assert rows["namespaces"]["status"] == rows["mount API"]["status"] == "ok"
    for name in ("control groups", "root", "networks of jobs"):
        assert rows[name]["status"] == "warn" and rows[name]["mend"], rows[name]
    assert not [row for row in rows.values() if row["found"] == "cannot see without root"]


@pytest.fixture
def subordinate_ids(tmp_path: Path) -> Iterator[range]:
    """An administrator gives the user a range of ids, on this machine only as tests see it."""
    ids = range(2000000000, 2000065536)
    covered = []
    for file, line in (
        ("passwd", f"ada:x:{USER}:{USER}::/nonexistent:/bin/sh\n"),
        ("subuid", f"ada:{ids.start}:{len(ids)}\n"),
        ("subgid", f"ada:{ids.start}:{len(ids)}\n"),
    ):
        path = Path("/etc", file)
        (tmp_path / file).write_text(path.read_text() + line)
        subprocess.run(["mount", "--bind", tmp_path / file, path], check=True)
        covered.append(path)
    yield ids
    subprocess.run(["umount", *covered], check=True)


@pytest.mark.skipif(not shutil.which("newuidmap"), reason="needs the package uidmap")
def test_subordinate_ids_are_used(subordinate_ids: range, up: User) -> None:
    deploy(up, "f", "import os\n\ndef handler(event):\n    return os.getuid()\n")
    assert up.run("fn", "call", "f").succeeded().out.strip() == "1000"
    server = server_of(up)
    users = set()
    for pid in descendants(server):
        status = Path(f"/proc/{pid}/status").read_text()
        users.add(int(status.split("\nUid:")[1].split()[0]))
        groups = status.split("\nGroups:")[1].splitlines()[0].split()
        assert not groups, "the groups of the user are dropped"
    own = users - {USER}
    assert own and all(user in subordinate_ids for user in own), users
    assert up.sql("select 2 as x", "--embedded") == [{"x": 2}]
    rows = json.loads(up.run("doctor", "-o", "json").out)
    found = [row for row in rows if row["name"] == "subordinate ids"]
    assert [row["status"] for row in found] == ["ok"], found
