"""Local files of a query are opened with the rights of the user who asks, and not of the server."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Snowmelt

from common.paths import SNOWMELT

ADA, BOB = 64501, 64502
MEMBERS, STAFF = 64321, 64322


class Site:
    """A server that members of a group may use, and a folder of tables."""

    def __init__(self, server: Snowmelt, data: Path) -> None:
        self.server, self.data = server, data
        # Where another user may execute it: the builds may be below the home folder of root.
        self.program = shutil.copy(SNOWMELT, server.folder)

    def file(self, name: str, owner: int, group: int, mode: int) -> Path:
        path = self.data / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x\n1\n")
        os.chown(path, owner, group)
        path.chmod(mode)
        return path

    def count(self, of: Path | str, uid: int, groups: list[int] | None = None) -> str:
        """The number of rows that a user sees, or what is said instead."""
        socket = self.server.folder / "state/snowmelt.sock"
        done = subprocess.run(
            [self.program, "sql", "-o", "csv", f"select count(*) n from '{of}'"],
            user=uid,
            group=MEMBERS,
            extra_groups=groups or [],
            env=self.server.environ() | {"HOME": "/nonexistent", "SNOWMELT_SOCKET": str(socket)},
            capture_output=True,
            text=True,
            cwd="/",
        )
        return done.stdout.split()[-1] if done.returncode == 0 else done.stderr


@pytest.fixture
def site(alone: Snowmelt) -> Iterator[Site]:
    alone.folder.chmod(0o755)
    data = alone.folder / "data"
    data.mkdir(mode=0o755)
    alone.environment = {"SNOWMELT_GROUP": str(MEMBERS)}
    alone.run("up").succeeded()
    yield Site(alone, data)
    alone.run("down")


def test_three_users_read_what_each_may_read(site: Site) -> None:
    of_root = site.file("root.csv", 0, 0, 0o600)
    of_ada = site.file("ada.csv", ADA, ADA, 0o600)
    of_staff = site.file("staff.csv", 0, STAFF, 0o640)
    of_all = site.file("all.csv", 0, 0, 0o644)
    for path, users in ((of_root, {0}), (of_ada, {0, ADA}), (of_all, {0, ADA, BOB})):
        for uid in (0, ADA, BOB):
            said = site.count(path, uid)
            if uid in users:
                assert said == "1", said
            else:
                assert "Permission denied" in said and str(path) in said, said
    # Groups are those of the process that asks, now.
    assert site.count(of_staff, BOB, [STAFF]) == "1"
    assert "Permission denied" in site.count(of_staff, BOB)
    # The server itself is not changed by it.
    assert site.count(of_root, 0) == "1"


def test_links_folders_and_globs_give_no_more_rights(site: Site) -> None:
    of_root = site.file("root.csv", 0, 0, 0o600)
    (site.data / "link.csv").symlink_to(of_root)
    assert "Permission denied" in site.count(site.data / "link.csv", ADA)
    inside = site.file("closed/a.csv", 0, 0, 0o644)
    inside.parent.chmod(0o700)
    for location in (inside, inside.parent, f"{inside.parent}/*.csv"):
        said = site.count(location, ADA)
        assert "Permission denied" in said, said
        assert site.count(location, 0) == "1"
    # A table with one file that the user may not read has no answer without its rows.
    assert "Permission denied" in site.count(f"{site.data}/*.csv", ADA)
    # Not even their names.
    assert "a.csv" not in site.count(inside.parent, ADA)
    # Rows of /proc that only root may read.
    assert site.count("/proc/1/environ", ADA) != "1"


def test_the_state_of_the_server_is_closed_to_members(site: Site, tmp_path: Path) -> None:
    code = tmp_path / "f.py"
    code.write_text("def handler(event):\n    return event\n")
    site.server.run("fn", "deploy", "f", code).succeeded()
    assert '"n":1' in site.server.run("fn", "call", "f", "--data", '{"n":1}').succeeded().out
    state = site.server.folder / "state"
    kept = [path for path in (state / "code").rglob("*") if path.is_file()]
    assert kept, "the code is kept"
    for folder in ("code", "files", "footers", "known", "logs", "backups"):
        copy = state / folder / "open.csv"
        copy.write_text("x\n1\n")
        copy.chmod(0o644)
        assert "Permission denied" in site.count(copy, ADA), folder
        assert site.count(copy, 0) == "1"
    # By hand, as a member without the platform.
    listed = subprocess.run(
        ["cat", *map(str, kept)], user=ADA, group=MEMBERS, extra_groups=[], capture_output=True
    )
    assert listed.stdout == b"" and listed.stderr.count(b"Permission denied") == len(kept)
