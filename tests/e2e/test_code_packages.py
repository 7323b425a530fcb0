"""Code packages: created once, run without a package index; errors of invalid ones."""

import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, Snowmelt, short_folder, wait_for
from images import Registry
from test_bursts import Cluster, cluster
from test_images import flip

__all__ = ["cluster"]

# No server listens at this address.
NO_INDEX = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}

REGION = """
# /// script
# dependencies = ["phonenumbers==8.13.*"]
# ///
import os

import phonenumbers


def region(event):
    number = phonenumbers.parse(event["phone"])
    return {
        "region": phonenumbers.region_code_for_number(number),
        "from": phonenumbers.__file__,
        "rank": os.environ.get("SNOWMELT_RANK"),
    }
"""
EVENT = json.dumps({"phone": "+41446681800"})
SHOWN = {"region": "CH", "from": "/opt/snowmelt/packages/phonenumbers/__init__.py"}
LAYER = "application/vnd.snowmelt.image.layer.v1+blocks"


@pytest.fixture(scope="module")
def code(machine: None) -> Iterator[Path]:
    with short_folder() as folder:
        (folder / "region.py").write_text(REGION)
        yield folder / "region.py"


@pytest.fixture(scope="module")
def home(code: Path) -> Iterator[Snowmelt]:
    """The platform that creates packages."""
    with short_folder() as folder:
        home = Snowmelt(folder)
        home.run("fn", "pack", f"{code}:region", "region:v1").succeeded()
        yield home


@pytest.fixture(scope="module")
def pushed(home: Snowmelt, code: Path, served: Registry) -> str:
    name = f"{served.address}/team/region:v1"
    done = home.run("--progress", "plain", "fn", "pack", f"{code}:region", name).succeeded()
    assert "2 of them already here" in done.err and f"pushed {name}@sha256:" in done.err
    return name


@pytest.fixture
def away(alone: Snowmelt) -> Iterator[Snowmelt]:
    """A platform with nothing in its state folder, and no package index."""
    alone.environment = NO_INDEX
    alone.run("up").succeeded()
    yield alone
    alone.run("down").succeeded()


def deploy(snowmelt: Snowmelt, name: str, package: str, *more: object) -> Result:
    return snowmelt.run("fn", "deploy", name, "--packed", package, *more)


def call(snowmelt: Snowmelt, name: str = "region", *more: object) -> Any:
    done = snowmelt.run("fn", "call", name, "--data", EVENT, *more).succeeded()
    return {key: value for key, value in json.loads(done.out).items() if value is not None}


def inspect(snowmelt: Snowmelt, name: str) -> Any:
    return json.loads(snowmelt.run("image", "inspect", name, "-o", "json").succeeded().out)


def test_a_package_runs_where_no_index_can_be_reached(
    home: Snowmelt, pushed: str, served: Registry, code: Path, away: Snowmelt
) -> None:
    plain = away.run("fn", "deploy", "plain", f"{code}:region")
    plain.failed_with("SM-0304")
    served.fetched()
    deploy(away, "region", pushed).succeeded()
    assert call(away) == SHOWN
    whole = sum(blob["bytes"] for blob in inspect(home, "region:v1")["blobs"])
    first = served.fetched()
    assert 0 < first < whole, f"{first} of {whole} bytes"
    wheels = away.folder / "state/packages/wheels"
    assert not wheels.exists() or not list(wheels.iterdir())
    shown = json.loads(away.run("fn", "show", "region", "-o", "json").succeeded().out)
    assert (shown["packed"], shown["handler"], shown["packages"]) == (pushed, "region", [])
    # The deployed function and its blocks are still present after a crash.
    server = json.loads(away.run("status", "-o", "json").succeeded().out)["pid"]
    os.kill(server, signal.SIGKILL)
    wait_for("the platform to end", lambda: not Path(f"/proc/{server}/ns").exists())
    away.run("up").succeeded()
    assert call(away) == SHOWN
    assert served.fetched() < first / 4


def test_functions_with_the_same_wheels_share_zygotes_and_tenants_do_not(
    home: Snowmelt, code: Path, pushed: str, away: Snowmelt, tmp_path: Path
) -> None:
    other = tmp_path / "other.py"
    other.write_text(REGION.replace("def region", "def other"))
    name = pushed.replace("region:v1", "other:v1")
    home.run("fn", "pack", f"{other}:other", name).succeeded()
    # No idle instance is kept, so that each call needs a start.
    deploy(away, "region", pushed, "--idle", "0s").succeeded()
    deploy(away, "other", name, "--idle", "0s").succeeded()
    deploy(away, "foreign", pushed, "--idle", "0s", "--tenant", "another").succeeded()
    for _ in range(3):
        assert call(away, "region") == call(away, "other") == SHOWN
        assert call(away, "foreign", "--tenant", "another") == SHOWN
    top = json.loads(away.run("top", "-o", "json").succeeded().out)
    zygotes = top["node"]["imports"]["zygotes"]
    grown = [zygote for zygote in zygotes if "phonenumbers" in zygote["modules"]]
    assert sorted(zygote["tenant"] for zygote in grown) == ["another", "default"], zygotes
    assert all(zygote["wheels"] == 1 for zygote in grown)
    assert sum(zygote["forks"] for zygote in grown) >= 3, zygotes


def test_the_same_input_gives_the_same_bytes_and_packages_share_wheels(
    home: Snowmelt, code: Path, alone: Snowmelt, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "region.py"
    shutil.copy(code, elsewhere)
    alone.run("fn", "pack", "region.py:region", "again:v1", cwd=tmp_path).succeeded()
    one, two = inspect(home, "region:v1"), inspect(alone, "again:v1")
    assert one["blobs"] == two["blobs"] and one["manifest"] == two["manifest"]
    elsewhere.write_text(REGION.replace('"region":', '"place":'))
    plain = ("--progress", "plain")
    done = alone.run(*plain, "fn", "pack", f"{elsewhere}:region", "changed:v1").succeeded()
    assert "2 layers, 1 of them already here" in done.err
    wheel, changed = two["blobs"][1], inspect(alone, "changed:v1")["blobs"]
    assert changed[1] == wheel and changed[2] != two["blobs"][2]


def test_a_flipped_bit_is_found(home: Snowmelt, code: Path, alone: Snowmelt) -> None:
    alone.run("fn", "pack", f"{code}:region", "region:v1").succeeded()
    blobs = alone.folder / "state/images/blobs/sha256"
    for blob in inspect(alone, "region:v1")["blobs"]:
        path = blobs / blob["digest"].removeprefix("sha256:")
        flip(path, blob["bytes"] // 2)
        done = alone.run("image", "verify", "region:v1", "-o", "json")
        done.failed_with("SM-1002", "region:v1", "1 place")
        flip(path, blob["bytes"] // 2)
    # The code is one block, which every start reads.
    flip(path, 1)
    assert deploy(alone, "region", "region:v1").code != 0
    flip(path, 1)
    deploy(alone, "region", "region:v1").succeeded()
    assert call(alone) == SHOWN


def test_a_package_for_another_platform_is_refused_by_name(
    home: Snowmelt, alone: Snowmelt, tmp_path: Path, code: Path
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file").write_text("no package")
    alone.run("image", "convert", f"dir:{tmp_path / 'root'}", "plain:v1").succeeded()
    deploy(alone, "a", "plain:v1").failed_with("SM-0305", "plain:v1", "snowmelt fn pack")
    deploy(alone, "a", "none:v1").failed_with("SM-1003", "none:v1")
    deploy(alone, "a", "UPPER/case").failed_with("SM-1001", "UPPER/case")
    alone.run("fn", "deploy", "a", code, "--packed", "x").failed_with("SM-0110", "--packed")
    alone.run("fn", "deploy", "a").failed_with("SM-0110", "PATH")
    alone.run("fn", "pack", tmp_path / "none.py", "a:v1").failed_with("SM-0110", "none.py")
    image = ("--image", "plain:v1")
    alone.run("fn", "deploy", "a", code, *image).failed_with("SM-0206", "python3", "plain:v1")
    package = ("--package", "no-such-package-anywhere-4711")
    alone.run("fn", "pack", code, "a:v1", *package).failed_with("SM-0301", "4711")
    layout = tmp_path / "layout"
    shutil.copytree(home.folder / "state/images", layout)
    for found, other in (("3.", "2."), (platform.machine(), "riscv64")):
        name = f"oci:{relabelled(layout, found, other)}:changed"
        told = deploy(alone, "a", name).failed_with("SM-0305", other, found, "this platform runs")
        assert "SNOWMELT_PYTHON" in told["hint"]


def relabelled(layout: Path, found: str, other: str) -> Path:
    """The same package with a label for another platform."""
    blobs, index = layout / "blobs/sha256", json.loads((layout / "index.json").read_text())

    def read(descriptor: dict[str, Any]) -> Any:
        return json.loads((blobs / descriptor["digest"].removeprefix("sha256:")).read_text())

    def write(document: Any) -> tuple[str, int]:
        text = json.dumps(document).encode()
        digest = hashlib.sha256(text).hexdigest()
        (blobs / digest).write_bytes(text)
        return f"sha256:{digest}", len(text)

    descriptor = dict(index["manifests"][0])
    manifest = read(descriptor)
    config = read(manifest["config"])
    labels = config["config"]["Labels"]
    label = json.loads(labels["dev.snowmelt.code-package"])
    made_for = label["made-for"]
    changed = {key: value.replace(found, other) for key, value in made_for.items()}
    assert changed != made_for
    labels["dev.snowmelt.code-package"] = json.dumps(label | {"made-for": changed})
    digest, size = write(config)
    manifest["config"] |= {"digest": digest, "size": size}
    digest, size = write(manifest)
    name = {"org.opencontainers.image.ref.name": "changed"}
    descriptor |= {"digest": digest, "size": size, "annotations": name}
    text = {"schemaVersion": 2, "manifests": [*index["manifests"][:1], descriptor]}
    (layout / "index.json").write_text(json.dumps(text))
    return layout


def test_a_moved_tag_does_not_change_a_function(
    home: Snowmelt, code: Path, served: Registry, away: Snowmelt, tmp_path: Path
) -> None:
    name = f"{served.address}/team/moves:v1"
    home.run("fn", "pack", f"{code}:region", name).succeeded()
    deploy(away, "region", name).succeeded()
    moved = tmp_path / "region.py"
    moved.write_text(REGION.replace('"region":', '"place":'))
    home.run("fn", "pack", f"{moved}:region", name).succeeded()
    away.run("down").succeeded()
    away.run("up").succeeded()
    assert call(away) == SHOWN
    deploy(away, "region", name).succeeded()
    assert call(away)["place"] == "CH"


def test_each_host_of_a_burst_finds_the_package_and_one_reads_its_blocks(
    pushed: str, served: Registry, cluster: Cluster
) -> None:
    # The registry's data, served on the loopback of each host.
    configuration = str(served.folder / "registry.yml")
    command = [shutil.which("docker-registry") or "docker-registry", "serve", configuration]
    logs = [(served.folder / f"log-{host}").open("wb") for host in cluster.hosts]
    own = [
        subprocess.Popen(["nsenter", f"--net=/run/netns/{host}", *command], stdout=log, stderr=log)
        for host, log in zip(cluster.hosts, logs, strict=True)
    ]
    run = cluster.snowmelt.run
    try:
        wait_for("a registry", lambda: deploy(cluster.snowmelt, "region", pushed).code == 0)
        for network in ((), ("--network",)):
            done = run("fn", "burst", "region", "-n", "4", "--data", EVENT, *network)
            results = [json.loads(line)["result"] for line in done.succeeded().out.splitlines()]
            assert results == [SHOWN | {"rank": str(rank)} for rank in range(4)]
            assert "on 2 hosts" in done.err
        run("fn", "rm", "region").succeeded()
    finally:
        for process, log in zip(own, logs, strict=True):
            process.kill()
            process.wait()
            log.close()
    one, two = (sent(Path(log.name)) for log in logs)
    # The manifest, and not the blocks, which come from the first host.
    assert 0 < two < one / 4, (one, two)


def sent(log: Path) -> int:
    """Bytes that a registry has sent."""
    return sum(map(int, re.findall(r"http\.response\.written=(\d+)", log.read_text())))
