"""Block images: converted, pushed, run by reading single blocks; errors of invalid ones."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, Snowmelt, descendants, short_folder, wait_for
from images import SERVE, Image, Registry, debian, registry, run

# Time limit of every request that must not hang.
LIMIT_S = 120.0
# Bytes that a function reads before it is ready.
STARTS_WITH = 24 << 20
# Both mount methods; the machine of these tests supports both.
both_ways = pytest.mark.parametrize("up", ["erofs", "fuse"], indirect=True)


@pytest.fixture(scope="module")
def made(machine: None) -> Iterator[Image]:
    with short_folder() as folder:
        yield debian(folder)


@pytest.fixture(scope="module")
def home(made: Image) -> Iterator[Snowmelt]:
    """The platform that converts the image."""
    with short_folder() as folder:
        home = Snowmelt(folder)
        home.run("image", "convert", f"oci:{made.layout}", "debian:v1").succeeded()
        yield home


@pytest.fixture(scope="module")
def pushed(home: Snowmelt, served: Registry) -> str:
    name = f"{served.address}/team/debian:blocks"
    home.run("image", "push", "debian:v1", name).succeeded()
    return name


@pytest.fixture
def up(alone: Snowmelt, request: pytest.FixtureRequest) -> Iterator[Snowmelt]:
    alone.environment["SNOWMELT_IMAGES_MOUNT"] = getattr(request, "param", "auto")
    alone.run("up").succeeded()
    yield alone
    alone.run("down").succeeded()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "serve").write_text(SERVE)
    (folder / "serve").chmod(0o755)
    return folder


def deploy(snowmelt: Snowmelt, code: Path, image: str) -> Result:
    command = ("--command", "./serve", "--timeout", "100s")
    return snowmelt.run("fn", "deploy", "read", code, *command, "--image", image)


def read(snowmelt: Snowmelt, path: str, pause: float = 0) -> Result:
    event = json.dumps({"read": path, "pause": pause})
    return snowmelt.run("fn", "call", "read", "--data", event, timeout=LIMIT_S)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def answer(done: Result) -> Any:
    return json.loads(done.succeeded().out)


def daemon(snowmelt: Snowmelt) -> int | None:
    """The process that serves the blocks of the running platform."""
    status = json.loads(snowmelt.run("status", "-o", "json").succeeded().out)
    return daemon_below(status["pid"])


def end_daemons(snowmelt: Snowmelt) -> None:
    """Kills each daemon until the server starts no other one."""
    unseen = 0
    while unseen < 10:
        pid = daemon(snowmelt)
        unseen = 0 if pid else unseen + 1
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def daemon_below(server: int, but: Collection[int] = ()) -> int | None:
    found = (pid for pid, line in descendants(server).items() if "internal images" in line)
    return next((pid for pid in found if pid not in but), None)


def listed(snowmelt: Snowmelt) -> list[dict[str, Any]]:
    return list(json.loads(snowmelt.run("image", "ls", "-o", "json").succeeded().out))


def test_an_image_made_by_other_tools_runs(made: Image, home: Snowmelt, code: Path) -> None:
    deploy(home, code, "debian:v1").succeeded()
    name = "usr/share/doc/libc6/copyright"
    assert answer(read(home, f"/{name}")) == digest(made.rootfs / name)
    shown = json.loads(home.run("fn", "show", "read", "-o", "json").succeeded().out)
    assert shown["image"] == "debian:v1"
    missing = deploy(home, code, "debian:v2")
    missing.failed_with("SM-1003", "debian:v2", "snowmelt image ls")


@both_ways
def test_both_mount_methods_show_the_same_image(
    pushed: str, made: Image, code: Path, up: Snowmelt, home: Snowmelt
) -> None:
    deploy(up, code, pushed).succeeded()
    for name in ("usr/share/doc/libc6/copyright", "usr/bin/python3"):
        assert answer(read(up, f"/{name}")) == digest((made.rootfs / name).resolve())
    assert answer(read(up, "/opt/ballast")) == digest(made.ballast)
    read(up, "/usr/none").failed_with("SM-0201", "No such file")
    checks = json.loads(up.run("doctor", "-o", "json").out)
    [row] = [check for check in checks if check["name"] == "lazy images"]
    form = up.environment["SNOWMELT_IMAGES_MOUNT"]
    assert row["status"] == "ok"
    assert ("FUSE alone" in row["found"]) == (form == "fuse")


def test_the_same_input_gives_the_same_image(
    made: Image, home: Snowmelt, alone: Snowmelt, served: Registry, tmp_path: Path
) -> None:
    [one] = [image for image in listed(home) if image["name"] == "debian:v1"]
    assert one["layers"] == 2 and one["bytes"] < one["raw_bytes"]
    target = f"{served.address}/team/debian:v1"
    copy = ("skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false")
    run(*copy, f"oci:{made.layout}", f"docker://{target}")
    alone.run("image", "convert", target).succeeded()
    [two] = listed(alone)
    assert (two["name"], two["manifest"]) == (target, one["manifest"])
    run(
        "skopeo",
        "copy",
        "--insecure-policy",
        f"oci:{made.layout}",
        f"docker-archive:{tmp_path / 'a.tar'}:x:v1",
    )
    again = alone.run(
        "--progress", "plain", "image", "convert", f"docker-archive:{tmp_path / 'a.tar'}", "again"
    )
    assert "2 of them already here" in again.succeeded().err
    run("gzip", tmp_path / "a.tar")
    pull = ("image", "pull", f"docker-archive:{tmp_path / 'a.tar.gz'}")
    alone.run(*pull).failed_with("SM-0110", "needs a local name", "image pull")
    alone.run(*pull, "pulled:v1").succeeded()
    [three] = [image for image in listed(alone) if image["name"] == "pulled:v1"]
    assert three["layers"] == 2 and three["raw_bytes"] == one["raw_bytes"]
    alone.run("image", "convert", f"dir:{made.rootfs}").failed_with("SM-0110", "needs a local name")
    alone.run("image", "push", "again", target).failed_with("SM-1001", "not a block image")


@both_ways
def test_another_host_fetches_the_blocks_of_a_start(
    pushed: str, served: Registry, made: Image, code: Path, up: Snowmelt, home: Snowmelt
) -> None:
    whole = next(image["bytes"] for image in listed(home) if image["name"] == "debian:v1")
    served.fetched()
    deploy(up, code, pushed).succeeded()
    answer(read(up, "/usr/bin/python3"))
    first = served.fetched()
    assert 0 < first < whole / 4, f"{first} of {whole} bytes"
    # The next start on this host has them.
    up.run("down").succeeded()
    up.run("up").succeeded()
    answer(read(up, "/usr/bin/python3"))
    assert served.fetched() < first / 4
    assert answer(read(up, "/opt/ballast")) == digest(made.ballast)
    assert served.fetched() >= made.ballast.stat().st_size


@both_ways
def test_a_daemon_that_is_killed_is_replaced_under_its_readers(
    pushed: str, made: Image, code: Path, up: Snowmelt
) -> None:
    deploy(up, code, pushed).succeeded()
    answer(read(up, "/usr/bin/python3"))
    event = json.dumps({"read": "/opt/ballast", "pause": 0.02})
    reading = up.start("fn", "call", "read", "--data", event)
    server = json.loads(up.run("status", "-o", "json").succeeded().out)["pid"]
    seen: set[int] = set()
    for _ in range(4):
        # As soon as it runs, so that some reads have not begun.
        pid = wait_for("the next daemon", lambda: daemon_below(server, seen), pause=0)
        seen.add(pid)
        os.kill(pid, signal.SIGKILL)
    assert answer(up.finish(reading, LIMIT_S)) == digest(made.ballast)
    assert daemon(up) not in seen


@both_ways
def test_without_a_daemon_reads_fail_and_the_next_call_starts_one(
    pushed: str, served: Registry, made: Image, code: Path, up: Snowmelt
) -> None:
    deploy(up, code, pushed).succeeded()
    answer(read(up, "/usr/bin/python3"))
    served.fetched()
    event = json.dumps({"read": "/opt/ballast", "pause": 0.5})
    reading = up.start("fn", "call", "read", "--data", event)
    wait_for("its reads", lambda: served.fetched() > 0)
    # It is replaced until it has died too often; between two of them there is none for a while.
    server = json.loads(up.run("status", "-o", "json").succeeded().out)["pid"]

    def is_over() -> bool:
        if pid := daemon_below(server):
            os.kill(pid, signal.SIGKILL)
        return reading.poll() is not None

    wait_for("the end of the reader", is_over)
    up.finish(reading, LIMIT_S).failed_with("SM-0201", "OSError")
    # Its root was put together on a mount that is dead now, and so was that of every sandbox in
    # this image: what was deployed before and what is deployed now run on a new one.
    assert answer(read(up, "/opt/ballast")) == digest(made.ballast)
    new = up.run("fn", "deploy", "new", code, "--command", "./serve", "--image", pushed)
    new.succeeded()
    called = up.run("fn", "call", "new", "--data", json.dumps({"read": "/usr/bin/python3"}))
    assert answer(called) == digest((made.rootfs / "usr/bin/python3").resolve())
    assert daemon(up) is not None


@both_ways
def test_a_killed_platform_leaves_no_reader_and_no_daemon(
    pushed: str, code: Path, up: Snowmelt
) -> None:
    deploy(up, code, pushed).succeeded()
    event = json.dumps({"read": "/opt/ballast", "pause": 0.05})
    reading = up.start("fn", "call", "read", "--data", event)
    pid = wait_for("a daemon", lambda: daemon(up))
    server = json.loads(up.run("status", "-o", "json").succeeded().out)["pid"]
    os.kill(server, signal.SIGKILL)
    assert up.finish(reading, LIMIT_S).code != 0
    wait_for("the daemon to end", lambda: not Path(f"/proc/{pid}/ns").exists())
    up.run("up").succeeded()
    answer(read(up, "/usr/bin/python3"))


def test_a_complete_image_needs_no_daemon(
    pushed: str, made: Image, code: Path, up: Snowmelt
) -> None:
    up.run("image", "pull", pushed).succeeded()
    deploy(up, code, pushed).succeeded()
    raw = up.folder / "state/raw"
    event = json.dumps({"read": "/usr/bin/python3", "pause": 1.5})
    # It occupies the first sandbox, whose mount does not change.
    first = up.start("fn", "call", "read", "--data", event)
    wait_for("raw files of all blobs", lambda: len(list(raw.glob("*.raw"))) == 3)
    assert answer(up.finish(first, LIMIT_S)) == digest((made.rootfs / "usr/bin/python3").resolve())

    def on_raw_files() -> bool:
        return any("erofs" in line and str(raw) in line for line in mounts(up))

    wait_for("a mount on them", on_raw_files)
    calls = ("fn", "call", "read", "--data", json.dumps({"read": "/opt/ballast", "pause": 0.05}))
    reading = [up.start(*calls) for _ in range(2)]
    wait_for("two sandboxes", lambda: len(programs(up)) == 2)
    end_daemons(up)
    ends = [up.finish(one, LIMIT_S) for one in reading]
    assert any(end.code == 0 and answer(end) == digest(made.ballast) for end in ends)
    up.run("down").succeeded()
    # The next platform mounts them immediately.
    up.run("up").succeeded()
    answer(read(up, "/usr/bin/python3"))
    end_daemons(up)
    assert answer(read(up, "/opt/ballast")) == digest(made.ballast)
    # Mounted files are kept, others are removed.
    up.run("down").succeeded()
    wait_for("the files to be free", lambda: "3 raw files" in pruned(up, "--dry-run"))
    assert "3 raw files" in pruned(up)
    assert not list(raw.glob("*.raw"))
    up.run("up").succeeded()
    answer(read(up, "/usr/bin/python3"))


def pruned(snowmelt: Snowmelt, *options: str) -> str:
    return snowmelt.run("image", "prune", *options).succeeded().err


def programs(snowmelt: Snowmelt) -> list[int]:
    """Sandboxes that run the test's program."""
    status = json.loads(snowmelt.run("status", "-o", "json").succeeded().out)
    return [pid for pid, line in descendants(status["pid"]).items() if "/code/serve" in line]


def mounts(snowmelt: Snowmelt) -> list[str]:
    """The mounts of the image daemon."""
    pid = daemon(snowmelt)
    return Path(f"/proc/{pid}/mountinfo").read_text().splitlines() if pid else []


def test_a_flipped_bit_is_found(made: Image, alone: Snowmelt) -> None:
    alone.run("image", "convert", f"oci:{made.layout}", "debian:v1").succeeded()
    alone.run("image", "verify", "debian:v1").succeeded()
    shown = json.loads(alone.run("image", "inspect", "debian:v1", "-o", "json").succeeded().out)
    blobs = alone.folder / "state/images/blobs/sha256"
    for blob in shown["blobs"]:
        path = blobs / blob["digest"].removeprefix("sha256:")
        for at in (0, blob["bytes"] // 2, blob["bytes"] - 1):
            flip(path, at)
            done = alone.run("image", "verify", "debian:v1", "-o", "json")
            done.failed_with("SM-1002", "debian:v1", "1 place")
            [damage] = json.loads(done.out)
            assert damage["blob"] == blob["digest"]
            flip(path, at)
    alone.run("image", "verify", "debian:v1").succeeded()


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_unreferenced_blobs_are_removed(made: Image, alone: Snowmelt) -> None:
    alone.run("image", "convert", f"oci:{made.layout}", "debian:v1").succeeded()
    blobs = alone.folder / "state/images/blobs/sha256"
    before = set(blobs.iterdir())
    alone.run("image", "prune").succeeded()
    assert set(blobs.iterdir()) == before
    alone.run("image", "rm", "debian:v1").succeeded()
    alone.run("image", "rm", "debian:v1").failed_with("SM-1003", "debian:v1")
    alone.run("image", "prune", "--dry-run").succeeded()
    assert set(blobs.iterdir()) == before
    alone.run("image", "prune").succeeded()
    assert not set(blobs.iterdir())


def test_wrong_names_and_paths(alone: Snowmelt, served: Registry, tmp_path: Path) -> None:
    convert = ("image", "convert")
    alone.run(*convert, f"oci:{tmp_path / 'none'}", "a").failed_with("SM-1003", "none")
    alone.run(*convert, "UPPER/case").failed_with("SM-0110", "a repository consists of a-z")
    alone.run(*convert, f"{served.address}/no/such:v1").failed_with("SM-1003", "v1")
    (tmp_path / "a.tar").write_text("no archive")
    alone.run(*convert, f"docker-archive:{tmp_path / 'a.tar'}", "a").failed_with("SM-1001")
    alone.run("image", "inspect", "none:v1").failed_with("SM-1003", "none:v1")
    alone.run("image", "push", "none:v1").failed_with("SM-1003", "none:v1")
    both = ("--block-size", "100KiB")
    alone.run(*convert, f"dir:{tmp_path}", "a", *both).failed_with("SM-0110", "power of two")


def test_blocks_shared_by_two_images(alone: Snowmelt, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "data").write_bytes(os.urandom(2 << 20))
    (root / "etc/name").write_text("one")
    alone.run("image", "convert", f"dir:{root}", "a").succeeded()
    alone.run("image", "diff", "a", "a").succeeded()
    (root / "etc/name").write_text("two")
    (root / "etc/new").write_text("new")
    alone.run("image", "convert", f"dir:{root}", "b").succeeded()
    done = alone.run("image", "diff", "a", "b", "-o", "json")
    found = json.loads(done.out)
    assert done.code == 1
    assert found["changes"] == [["/etc/new", "added"], ["/etc/name", "content"]]
    # The file is random and larger than a block, so most of its blocks are in both.
    assert found["blocks"]["both"]["bytes"] >= 1 << 20
    assert "content    /etc/name" in alone.run("image", "diff", "a", "b").out


def test_a_warmed_host_fetches_no_block(
    pushed: str, served: Registry, made: Image, code: Path, alone: Snowmelt
) -> None:
    served.fetched()
    alone.run("image", "warm", pushed, "--all").succeeded()
    assert served.fetched() > made.ballast.stat().st_size
    deploy(alone, code, pushed).succeeded()
    assert answer(read(alone, "/opt/ballast")) == digest(made.ballast)
    # Manifests and tables only.
    assert served.fetched() < 1 << 20
    local = alone.run("--progress", "plain", "image", "pull", pushed, "here").succeeded()
    assert "here" in local.err
    served.fetched()
    deploy(alone, code, "here").succeeded()
    answer(read(alone, "/usr/bin/python3"))
    assert served.fetched() == 0


def test_a_running_platform_uses_blocks_that_were_warmed(
    pushed: str, served: Registry, made: Image, code: Path, up: Snowmelt
) -> None:
    # Reads of raw files would not use the cache.
    up.environment["SNOWMELT_IMAGES_RAW"] = "0"
    up.run("down").succeeded()
    up.run("up").succeeded()
    deploy(up, code, pushed).succeeded()
    answer(read(up, "/usr/bin/python3"))
    up.run("image", "prune", "--blocks").failed_with("SM-0504", "blocks")
    served.fetched()
    up.run("image", "warm", pushed, "--all").succeeded()
    assert served.fetched() > made.ballast.stat().st_size
    assert answer(read(up, "/opt/ballast")) == digest(made.ballast)
    # Tables only.
    assert served.fetched() < 64 << 10
    up.environment["SNOWMELT_IMAGES_CACHE"] = "1MiB"
    up.run("down").succeeded()
    up.run("up").succeeded()
    deploy(up, code, pushed).succeeded()
    answer(read(up, "/usr/bin/python3"))
    up.run("image", "warm", pushed, "--all").failed_with("SM-1001", "images.cache")
    assert answer(read(up, "/opt/ballast")) == digest(made.ballast)


def test_a_start_profile_is_used_by_platforms_that_trust_its_key(
    made: Image, served: Registry, code: Path, up: Snowmelt, home: Snowmelt
) -> None:
    """The start on one platform reads a file that functions of others never read."""
    name = f"{served.address}/team/starts:blocks"
    home.run("image", "push", "debian:v1", name).succeeded()
    start = f"open({made.inside!r}, 'rb').read({STARTS_WITH})\nlistener ="
    reading = code.parent / "reading"
    shutil.copytree(code, reading)
    (reading / "serve").write_text(SERVE.replace("listener =", start, 1))
    home.environment["SNOWMELT_IMAGES_PUBLISH_STARTS"] = "true"
    home.run("up").succeeded()
    try:
        deploy(home, reading, name).succeeded()
        answer(read(home, "/usr/bin/python3"))
        wait_for("the start beside the image", lambda: starts(served, name, home))
    finally:
        home.run("down").succeeded()
        del home.environment["SNOWMELT_IMAGES_PUBLISH_STARTS"]
    key = home.run("image", "key").succeeded().out.strip()

    # The profile of an untrusted key is read and ignored.
    served.fetched()
    deploy(up, code, name).succeeded()
    profile = starts(served, name, home)[0]
    wait_for("the start to be looked at", lambda: f"blobs/{profile}" in served.log())
    answer(read(up, "/usr/bin/python3"))
    up.run("down").succeeded()
    assert cached(up) < STARTS_WITH
    up.run("image", "prune", "--blocks").succeeded()
    assert cached(up) == 0

    shutil.rmtree(up.folder / "state/starts")
    up.environment["SNOWMELT_IMAGES_TRUSTED_KEYS"] = key
    up.run("up").succeeded()
    deploy(up, code, name).succeeded()
    wait_for("the blocks of the start", lambda: cached(up) >= STARTS_WITH)
    held = up.run("image", "prune", "--blocks")
    held.failed_with("SM-0504", "running platform", "snowmelt down")


def test_a_start_profile_is_pushed_with_its_image(
    served: Registry, code: Path, alone: Snowmelt, made: Image
) -> None:
    name = f"{served.address}/team/pushed:blocks"
    alone.run("image", "convert", f"oci:{made.layout}", "debian:v1").succeeded()
    first = alone.run("--progress", "plain", "image", "push", "debian:v1", name).succeeded()
    assert "start profile" not in first.err and starts(served, name, alone) == []
    deploy(alone, code, "debian:v1").succeeded()
    answer(read(alone, "/usr/bin/python3"))
    again = alone.run("--progress", "plain", "image", "push", "debian:v1", name).succeeded()
    assert "all blobs already existed, with its start profile" in again.err
    assert len(starts(served, name, alone)) == 1


def starts(served: Registry, name: str, snowmelt: Snowmelt) -> list[str]:
    """Digests of the start profiles of an image, in the tag of a registry without referrers API."""
    shown = json.loads(snowmelt.run("image", "inspect", name, "-o", "json").succeeded().out)
    repository = name.removeprefix(served.address + "/").rsplit(":", 1)[0]
    tag = shown["manifest"].replace(":", "-")
    found = []
    for one in served.json(f"{repository}/manifests/{tag}").get("manifests", []):
        manifest = served.json(f"{repository}/manifests/{one['digest']}")
        found += [layer["digest"] for layer in manifest["layers"]]
    return found


def cached(snowmelt: Snowmelt) -> int:
    """Bytes of blocks of images in registries."""
    blocks = (snowmelt.folder / "state/blocks").glob("??/*")
    return sum(block.stat().st_size for block in blocks)


@pytest.fixture
def own(made: Image, home: Snowmelt, tmp_path: Path) -> Iterator[tuple[Registry, str]]:
    """A separate registry of the test, with the image."""
    (tmp_path / "own").mkdir()
    own = registry(tmp_path / "own")
    name = f"{own.address}/team/debian:blocks"
    home.run("image", "push", "debian:v1", name).succeeded()
    yield own, name
    own.stop()


@both_ways
def test_an_unavailable_blob_is_reported_with_its_cause(
    own: tuple[Registry, str], code: Path, up: Snowmelt
) -> None:
    served, name = own
    shown = json.loads(up.run("image", "inspect", name, "-o", "json").succeeded().out)
    # The metadata blob, which the mount needs, and the layer with the program.
    for blob in shown["blobs"][:2]:
        data = served.blob(blob["digest"])
        whole = data.read_bytes()
        data.unlink()
        deploy(up, code, name).failed_with("SM-1003", blob["digest"])
        data.write_bytes(whole[:1])
        deploy(up, code, name).failed_with("SM-1001", blob["digest"])
        flipped = bytearray(whole)
        # Both blocks and table are damaged.
        for at in range(0, len(whole), 32):
            flipped[at] ^= 1
        data.write_bytes(bytes(flipped))
        deploy(up, code, name).failed_with("SM-1002", "damaged")
        data.write_bytes(whole)
    deploy(up, code, name).succeeded()
    answer(read(up, "/usr/bin/python3"))


def test_reads_and_manifest_requests_wait_while_the_registry_restarts(
    own: tuple[Registry, str], made: Image, code: Path, up: Snowmelt
) -> None:
    served, name = own
    deploy(up, code, name).succeeded()
    answer(read(up, "/usr/bin/python3"))
    served.stop()
    event = json.dumps({"read": "/opt/ballast"})
    reading = up.start("fn", "call", "read", "--data", event)
    inspecting = up.start("image", "inspect", name, "-o", "json")
    # Longer than five attempts take.
    time.sleep(4)
    assert reading.poll() is None, up.finish(reading)
    assert inspecting.poll() is None, up.finish(inspecting)
    again = registry(served.folder, served.address)
    try:
        assert answer(up.finish(reading, LIMIT_S)) == digest(made.ballast)
        up.finish(inspecting, LIMIT_S).succeeded()
    finally:
        again.stop()


@pytest.mark.parametrize("signed", ["self-signed", "by an authority"])
def test_a_registry_with_its_own_certificate_authority(
    made: Image, home: Snowmelt, code: Path, alone: Snowmelt, tmp_path: Path, signed: str
) -> None:
    key, certificate, authority = (tmp_path / name for name in ("key", "certificate", "authority"))
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    at = ("-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1")
    run(*new, *at, "-keyout", key, "-out", certificate)
    shutil.copy(certificate, authority)
    if signed == "by an authority":
        authority_key = tmp_path / "authority-key"
        run(*new, "-subj", "/CN=authority", "-keyout", authority_key, "-out", authority)
        by = ("-CA", authority, "-CAkey", authority_key, "-addext", "basicConstraints=CA:FALSE")
        run(*new, *at, *by, "-keyout", key, "-out", certificate)
    (tmp_path / "tls").mkdir()
    served = registry(tmp_path / "tls", tls=f", tls: {{certificate: {certificate}, key: {key}}}")
    name = f"{served.address}/team/debian:blocks"
    try:
        push = ("image", "push", "debian:v1", name)
        home.run(*push).failed_with("SM-1006", served.address, "--ca-file")
        other = tmp_path / "other"
        run(*new, "-subj", "/CN=other", "-keyout", tmp_path / "other-key", "-out", other)
        home.run(*push, "--ca-file", other).failed_with("SM-1006", served.address)
        home.run(*push, "--ca-file", code / "serve").failed_with("SM-1001", "no PEM certificate")
        home.run(*push, "--ca-file", authority).succeeded()
        alone.run("up", "--ca-file", authority).succeeded()
        deploy(alone, code, name).succeeded()
        path = "/usr/bin/python3"
        assert answer(read(alone, path)) == digest((made.rootfs / path[1:]).resolve())
        alone.run("down").succeeded()
    finally:
        served.stop()


def test_other_tools_find_images_by_their_names(made: Image, alone: Snowmelt) -> None:
    alone.run("image", "convert", f"oci:{made.layout}", "debian:v1").succeeded()
    layout = alone.folder / "state/images"
    found = json.loads(run("skopeo", "inspect", "--raw", f"oci:{layout}:debian:v1"))
    assert found["artifactType"] == "application/vnd.snowmelt.image.v1"
    [named] = json.loads((layout / "index.json").read_text())["manifests"]
    assert named["annotations"]["org.opencontainers.image.ref.name"] == "debian:v1"
    assert named["annotations"]["io.containerd.image.name"] == "docker.io/library/debian:v1"
    alone.run("image", "rm", "debian:v1").succeeded()
