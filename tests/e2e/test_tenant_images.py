"""Images of tenants: names, content and logins for registries are each tenant's own."""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, Snowmelt, wait_for
from images import Image, Registry, debian, registry
from test_remote_leases import Platform, served

# Reads a file of the image that it runs in.
READS = "def handler(event):\n    return open(event).read()\n"


@pytest.fixture(scope="module")
def made(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return debian(tmp_path_factory.mktemp("image"), ballast_mib=1)


@pytest.fixture
def platform(alone: Snowmelt, tmp_path: Path) -> Iterator[Platform]:
    with served(alone, tmp_path) as platform:
        yield platform


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "reads.py").write_text(READS)
    return tmp_path / "reads.py"


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Registry]:
    """A registry that only who logs in may read."""
    (tmp_path / "closed").mkdir()
    started = registry(tmp_path / "closed", login=True)
    yield started
    started.stop()


def names(snowmelt: Snowmelt, tenant: str) -> list[str]:
    done = snowmelt.run("image", "ls", "-o", "json", "--tenant", tenant).succeeded()
    return [image["name"] for image in json.loads(done.out)]


def deploy(snowmelt: Snowmelt, tenant: str, code: Path, image: str) -> Result:
    return snowmelt.run("fn", "deploy", "reads", code, "--image", image, "--tenant", tenant)


def read(snowmelt: Snowmelt, tenant: str) -> Any:
    call = ("fn", "call", "reads", "--data", '"/opt/whose"', "--tenant", tenant)
    return json.loads(snowmelt.run(*call).succeeded().out)


def key(platform: Platform, tenant: str) -> str:
    new = ("token", "new", tenant, "--role", "developer")
    return platform.snowmelt.run(*new).succeeded().out.strip()


def ask(platform: Platform, key: str, method: str, path: str, body: Any = None) -> Any:
    text = "" if body is None else json.dumps(body)
    return platform.ask(method, path, key, f"Content-Length: {len(text)}\r\n", text)


def test_the_same_name_of_two_tenants_is_two_images(
    made: Image, platform: Platform, code: Path
) -> None:
    snowmelt = platform.snowmelt
    for tenant in ("acme", "other"):
        (made.rootfs / "opt/whose").write_text(f"of {tenant}")
        (made.rootfs / "opt/whose").chmod(0o644)
        convert = ("image", "convert", f"dir:{made.rootfs}", "app:v1", "--tenant", tenant)
        snowmelt.run(*convert).succeeded()
    for tenant in ("acme", "other"):
        deploy(snowmelt, tenant, code, "app:v1").succeeded()
    for tenant in ("acme", "other"):
        assert read(snowmelt, tenant) == f"of {tenant}"
        assert names(snowmelt, tenant) == ["app:v1"]
    assert names(snowmelt, "default") == []
    # Nobody finds the image of another, by its name, its digest or its folder.
    deploy(snowmelt, "default", code, "app:v1").failed_with("SM-1003")
    third = key(platform, "third")
    assert ask(platform, third, "GET", "/v1/images") == (200, [])
    status, refused = ask(platform, third, "POST", "/v1/images/details", {"image": "app:v1"})
    assert (status, refused["code"]) == (422, "SM-1003"), refused
    # Over the network a tenant has its own ones, and names no registry.
    mine = key(platform, "acme")
    status, listed = ask(platform, mine, "GET", "/v1/images")
    assert [image["name"] for image in listed] == ["app:v1"]
    text = {"kind": "source", "file": "reads.py", "text": READS}
    function = {"name": "far", "code": text, "image": "app:v1"}
    assert ask(platform, mine, "POST", "/v1/functions", function)[0] == 201
    called = ask(platform, mine, "POST", "/v1/functions/far/invocations", {"event": "/opt/whose"})
    assert called[1]["result"] == "of acme", called
    there = function | {"image": "registry.example/app:v1"}
    status, refused = ask(platform, mine, "POST", "/v1/functions", there)
    assert (status, refused["code"]) == (403, "SM-0518"), refused
    folder = function | {"image": f"oci:{snowmelt.folder}/state/tenants/other/images:app:v1"}
    status, refused = ask(platform, mine, "POST", "/v1/functions", folder)
    assert (status, refused["code"]) == (403, "SM-0518"), refused
    # One removes its own: the other's stays whole.
    name = "docker.io%2Flibrary%2Fapp:v1"
    assert ask(platform, mine, "DELETE", f"/v1/images/{name}")[0] == 204
    assert ask(platform, mine, "GET", "/v1/images") == (200, [])
    assert names(snowmelt, "other") == ["app:v1"]
    snowmelt.run("image", "verify", "app:v1", "--tenant", "other").succeeded()


def test_an_image_of_a_registry_with_a_login_is_for_tenants_that_have_one(
    made: Image, platform: Platform, closed: Registry, code: Path, tmp_path: Path
) -> None:
    snowmelt = platform.snowmelt
    name = f"{closed.address}/team/app:v1"
    auth = base64.b64encode(b"me:secret").decode()
    login = json.dumps({"auths": {closed.address: {"auth": auth}}})
    docker = tmp_path / "docker"
    docker.mkdir()
    (docker / "config.json").write_text(login)
    (made.rootfs / "opt/whose").write_text("of the team")
    (made.rootfs / "opt/whose").chmod(0o644)
    snowmelt.run("image", "convert", f"dir:{made.rootfs}", "app:v1").succeeded()
    # The command has the login; the server and the tenants have none.
    snowmelt.environment["DOCKER_CONFIG"] = str(docker)
    snowmelt.run("image", "push", "app:v1", name).succeeded()
    state = snowmelt.folder / "state"
    for tenant in ("acme", "other"):
        deploy(snowmelt, tenant, code, name).failed_with("SM-1004")
    own = state / "tenants/acme/registries.json"
    # The server makes the folder, as its own user.
    assert names(snowmelt, "acme") == []
    own.write_text(login)
    own.chmod(0o644)
    deploy(snowmelt, "acme", code, name).succeeded()
    assert read(snowmelt, "acme") == "of the team"
    parts = state / "blocks/tenants"
    assert [any(part.rglob("*")) for part in parts.iterdir()] == [True]
    # The blocks are here, and the other tenant has no login all the same.
    deploy(snowmelt, "other", code, name).failed_with("SM-1004")
    pinned = json.loads(snowmelt.run("image", "inspect", "app:v1", "-o", "json").succeeded().out)
    by_digest = f"{closed.address}/team/app@{pinned['manifest']}"
    deploy(snowmelt, "other", code, by_digest).failed_with("SM-1004")
    assert len(list(parts.iterdir())) == 1
    # A login that is taken away counts at the next use.
    own.unlink()
    deploy(snowmelt, "acme", code, name).failed_with("SM-1004")


def test_each_tenant_has_its_own_share_of_the_disk(platform: Platform, tmp_path: Path) -> None:
    snowmelt = platform.snowmelt
    for name, size in (("large", 8 << 20), ("small", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_bytes(os.urandom(size))

    def convert(name: str, tenant: str) -> Result:
        place = f"dir:{tmp_path / name}"
        return snowmelt.run("image", "convert", place, f"{name}:v1", "--tenant", tenant)

    for tenant in ("acme", "other"):
        convert("large", tenant).succeeded()
    snowmelt.run("quota", "set", "acme", "disk=4MiB").succeeded()
    wait_for("the disk to be measured", lambda: convert("small", "acme").code != 0)
    convert("small", "acme").failed_with("SM-0533", "on the disk", "MiB of images")
    convert("small", "other").succeeded()
    shown = json.loads(snowmelt.run("quota", "ls", "-o", "json", "--tenant", "acme").out)
    (disk,) = [quota for quota in shown[0]["quotas"] if quota["kind"] == "disk"]
    assert disk["used"] >= 8 << 20 and disk["by"][0]["name"] == "images", disk
    # What the tenant removes is room again.
    for words in (("rm", "large:v1"), ("prune",)):
        snowmelt.run("image", *words, "--tenant", "acme").succeeded()
    wait_for("room", lambda: convert("small", "acme").code == 0)
    assert names(snowmelt, "other") == ["large:v1", "small:v1"]
