"""Images through a running server: the command opens the user's files, the server does the work."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, Snowmelt, short_folder, wait_for
from images import registry, run
from test_tenants import User

from common.paths import SNOWMELT

# Neither root nor the server's user.
MEMBER = 65534
GROUP = 64323
# Converting so many zeros takes longer than a test waits before it kills.
ENDLESS = 200 << 30


class Member:
    """A member of the socket's group, with files that only this user can read."""

    def __init__(self, server: Snowmelt, folder: Path) -> None:
        self.server, self.folder = server, folder
        # The checkout may not be readable for others.
        self.program = folder / "snowmelt"
        shutil.copy(SNOWMELT, self.program)
        self.program.chmod(0o755)
        self.own = folder / "own"
        self.own.mkdir(mode=0o700)
        self.give(self.own)

    def give(self, path: Path) -> Path:
        os.chown(path, MEMBER, GROUP)
        return path

    def root(self, name: str, text: str) -> Path:
        """A folder for an image, closed to others."""
        root = self.own / name
        root.mkdir(mode=0o700)
        (root / "data").write_text(text)
        (root / "data").chmod(0o600)
        self.give(root / "data")
        return self.give(root)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        environment = self.server.environ() | {"HOME": str(self.own)}
        environment.pop("SNOWMELT_GROUP", None)
        return subprocess.Popen(
            [str(self.program), "--errors", "json", *map(str, arguments)],
            user=MEMBER,
            group=GROUP,
            extra_groups=[],
            env=environment,
            cwd=self.own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object) -> Result:
        return self.server.finish(self.start(*arguments))


@pytest.fixture
def up(alone: Snowmelt) -> Iterator[Snowmelt]:
    alone.folder.chmod(0o755)
    alone.environment["SNOWMELT_GROUP"] = str(GROUP)
    alone.run("up").succeeded()
    yield alone
    alone.run("down").succeeded()


@pytest.fixture
def member(up: Snowmelt) -> Iterator[Member]:
    with short_folder() as folder:
        folder.chmod(0o755)
        yield Member(up, folder)


def names(done: Result) -> list[str]:
    return [image["name"] for image in json.loads(done.succeeded().out)]


def partial(snowmelt: Snowmelt) -> list[str]:
    """Files of unfinished conversions, and of anything that would be spooled."""
    state = snowmelt.folder / "state"
    spools = [path.name for path in state.iterdir() if "spool" in path.name]
    folders = ("images", f"tenants/uid-{MEMBER}/images")
    unfinished = [path for one in folders for path in (state / one / ".snowmelt/tmp").glob("*")]
    return spools + [path.name for path in unfinished]


def test_a_member_converts_reads_and_removes_images_of_its_own(
    up: Snowmelt, member: Member
) -> None:
    root = member.root("app", "one")
    member.run("image", "convert", f"dir:{root}", "app:v1").succeeded()
    assert names(member.run("image", "ls", "-o", "json")) == ["app:v1"]
    assert names(up.run("image", "ls", "-o", "json")) == []
    by_root = ("image", "ls", "-o", "json", "--tenant", f"uid-{MEMBER}")
    assert names(up.run(*by_root)) == ["app:v1"]
    shown = json.loads(member.run("image", "inspect", "app:v1", "-o", "json").succeeded().out)
    assert [blob["part"] for blob in shown["blobs"]] == ["metadata", "layer 1"]
    member.run("image", "verify", "app:v1").succeeded()
    member.run("image", "diff", "app:v1", "app:v1").succeeded()
    assert member.run("image", "key").succeeded().out.strip()
    # The same name of another tenant is another image.
    up.run("image", "convert", f"dir:{member.root('two', 'two')}", "app:v1").succeeded()
    again = member.run("image", "inspect", "app:v1", "-o", "json").succeeded().out
    assert json.loads(again) == shown
    up.run("image", "rm", "app:v1").succeeded()
    member.run("image", "rm", "app:v1").succeeded()
    member.run("image", "rm", "app:v1").failed_with("SM-1003")
    assert "removed 4 blobs" in member.run("image", "prune").succeeded().err
    assert names(member.run("image", "ls", "-o", "json")) == []


def test_an_archive_that_only_its_user_can_read_is_converted(up: Snowmelt, member: Member) -> None:
    root, layout = member.root("app", "one"), member.folder / "layout"
    run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", f"{layout}:v1")
    bundle = member.folder / "bundle"
    run("umoci", "unpack", "--image", f"{layout}:v1", bundle)
    shutil.copy(root / "data", bundle / "rootfs/data")
    run("umoci", "repack", "--image", f"{layout}:v1", bundle)
    archive = member.own / "app.tar"
    run("skopeo", "copy", "--insecure-policy", f"oci:{layout}:v1", f"docker-archive:{archive}:a:v1")
    archive.chmod(0o600)
    member.give(archive)
    place = f"docker-archive:{archive}"
    member.run("image", "convert", place, "app:v1").succeeded()
    again = member.run("--progress", "plain", "image", "convert", place, "again:v1").succeeded()
    assert "1 of them already here" in again.err
    of_member = ("image", "convert", f"oci:{layout}:v1", "root:v1", "--tenant", f"uid-{MEMBER}")
    up.run(*of_member).succeeded()
    member.run("image", "diff", "root:v1", "app:v1").succeeded()


def test_a_path_that_the_user_may_not_read_is_its_error(up: Snowmelt, member: Member) -> None:
    closed = member.folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "data").write_text("secret of root")
    shut = member.own / "shut.tar"
    shut.write_text("secret of root")
    shut.chmod(0o600)
    for place in (f"dir:{closed}", f"dir:{closed}/data", f"docker-archive:{shut}"):
        refused = member.run("image", "convert", place, "app:v1")
        refused.failed_with("SM-1003", "cannot be read", place)
    member.run("image", "inspect", f"oci:{closed}").failed_with("SM-1003")
    assert names(up.run("image", "ls", "-o", "json")) == []
    assert partial(up) == []


def test_the_server_opens_no_path_of_a_request(up: Snowmelt, member: Member) -> None:
    user = User(up, None)
    for place in ("oci:/", "docker-archive:/etc/passwd", "dir:/etc"):
        status, answer = user.ask("POST", "/v1/images/details", {"image": place})
        assert (status, answer["code"]) == (422, "SM-1001"), answer


def endless(member: Member) -> Path:
    root = member.root("endless", "")
    os.truncate(root / "data", ENDLESS)
    return root


def converting(snowmelt: Snowmelt, member: Member, root: Path) -> subprocess.Popen[str]:
    started = member.start("image", "convert", f"dir:{root}", "app:v1")
    wait_for("its partial file", lambda: partial(snowmelt))
    return started


def test_nothing_partial_is_left_when_the_client_is_killed(up: Snowmelt, member: Member) -> None:
    root = endless(member)
    for number in (signal.SIGKILL, signal.SIGINT):
        started = converting(up, member, root)
        started.send_signal(number)
        ended = up.finish(started)
        assert ended.code == (-signal.SIGKILL if number == signal.SIGKILL else 130)
        wait_for("its partial file to be removed", lambda: not partial(up))
    assert names(up.run("image", "ls", "-o", "json")) == []
    # Nobody keeps the lock of conversions.
    wait_for("the lock to be free", lambda: member.run("image", "prune").code == 0)


def test_nothing_partial_is_left_when_the_server_is_killed(up: Snowmelt, member: Member) -> None:
    started = converting(up, member, endless(member))
    server = json.loads(up.run("status", "-o", "json").succeeded().out)["pid"]
    os.kill(server, signal.SIGKILL)
    up.finish(started).failed_with("SM-0503", "run the command again")
    assert partial(up)
    up.run("up").succeeded()
    wait_for("its partial file to be removed", lambda: not partial(up))
    assert names(up.run("image", "ls", "-o", "json")) == []


def test_a_server_that_ends_cancels_a_conversion(up: Snowmelt, member: Member) -> None:
    started = converting(up, member, endless(member))
    up.run("down").succeeded()
    up.finish(started).failed_with("SM-0113", "the server ends")
    assert partial(up) == []
    up.run("up").succeeded()


@pytest.fixture
def tls(member: Member) -> Iterator[tuple[str, Path]]:
    """A registry whose certificate only the member can read."""
    key, certificate = member.folder / "key", member.own / "authority.pem"
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    at = ("-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1")
    run(*new, *at, "-keyout", key, "-out", certificate)
    certificate.chmod(0o600)
    member.give(certificate)
    (member.folder / "tls").mkdir()
    served = registry(
        member.folder / "tls", tls=f", tls: {{certificate: {certificate}, key: {key}}}"
    )
    yield served.address, certificate
    served.stop()


def test_certificates_of_the_client_are_trusted_for_its_requests_only(
    up: Snowmelt, member: Member, tls: tuple[str, Path]
) -> None:
    address, certificate = tls
    name, trusting = f"{address}/team/app:v1", ("--ca-file", certificate)
    member.run("image", "convert", f"dir:{member.root('app', 'one')}", "app:v1").succeeded()
    push = ("image", "push", "app:v1", name)
    member.run(*push).failed_with("SM-1006", address)
    member.run(*push, *trusting).succeeded()
    pull = ("image", "pull", name)
    member.run(*pull, "pulled:v1", *trusting).succeeded()
    member.run("image", "diff", "pulled:v1", "app:v1").succeeded()
    inspect = ("image", "inspect", name, "-o", "json")
    shown: dict[str, Any] = json.loads(member.run(*inspect, *trusting).succeeded().out)
    assert shown["origin"] == {"registry": name}
    # The server does not trust it for others.
    up.run(*inspect).failed_with("SM-1006", address)
    member.run("image", "warm", name, "--all", *trusting).succeeded()
    wrong = member.own / "wrong.pem"
    wrong.write_text("no certificate")
    member.give(wrong)
    member.run(*push, "--ca-file", wrong).failed_with("SM-1001", "no PEM certificate")
    wrong.chmod(0o000)
    member.run(*push, "--ca-file", wrong).failed_with("SM-1003", "cannot be read")


def test_without_a_server_no_root_is_needed(member: Member) -> None:
    """The state folder is the user's own; no platform is started for images."""
    alone = Snowmelt(member.own / "alone")
    member.server = alone
    alone.folder.mkdir()
    member.give(alone.folder)
    member.run("image", "convert", f"dir:{member.root('app', 'one')}", "app:v1").succeeded()
    assert names(member.run("image", "ls", "-o", "json")) == ["app:v1"]
    member.run("image", "rm", "app:v1").succeeded()
    member.run("image", "prune").succeeded()
    assert names(member.run("image", "ls", "-o", "json")) == []
