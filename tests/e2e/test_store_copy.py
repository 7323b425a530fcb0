"""Records of a platform that are moved to etcd and back."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, short_folder
from controls import EtcdCluster, free_port
from platform_records import Made, ends, make, seen, soon


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    servers = EtcdCluster(tmp_path, 1)
    yield servers
    servers.stop()


@pytest.fixture
def platform(machine: None) -> Iterator[Snowmelt]:
    with short_folder() as folder:
        control = Snowmelt(folder)
        yield control
        for state in folder.glob("state*"):
            if (state / "snowmelt.sock").exists():
                at(control, state).run("down", "--grace", "0s")


def at(control: Snowmelt, state: Path, **more: str) -> Snowmelt:
    """The same command line with another state folder."""
    return replace(control, environment={"SNOWMELT_STATE": str(state), **more})


def up(control: Snowmelt) -> None:
    options = ["--listen", f"127.0.0.1:{free_port()}", "--name", "one"]
    control.run("up", *options).succeeded()


def copied(control: Snowmelt, source: object, target: object) -> dict[str, Any]:
    done = control.run(
        "store", "copy", "--from", source, "--to", target, "--folder", "shared", "-o", "json"
    )
    return dict(json.loads(done.succeeded().out))


def refused(control: Snowmelt, source: object, target: object, code: str, *parts: str) -> None:
    copy = ["store", "copy", "--from", source, "--to", target, "--folder", "shared"]
    control.run(*copy).failed_with(code, *parts)


def test_a_platform_moves_to_etcd_and_back(platform: Snowmelt, etcd: EtcdCluster) -> None:
    folder = platform.folder
    state = folder / "state"
    url = etcd.at(etcd.clients)
    refused(platform, state, url, "SM-0505", "no records")
    refused(platform, url, url, "SM-0541")
    up(platform)
    made: Made = make(platform, folder, soon())
    before = seen(platform, made)
    refused(platform, state, url, "SM-0504")
    platform.run("down", "--grace", "0s").succeeded()

    there = copied(platform, state, url)
    assert there["records"] >= 12 and there["files"] >= 4, there
    long = list((folder / "shared/records").iterdir())
    assert len(long) >= 3, "long values are files"
    again = "has records already"
    refused(platform, state, url, "SM-0541", again)

    # A copy that is not complete is served by nobody, and goes on.
    mark = {"from": str(state / "state.redb")}
    client = f"127.0.0.1:{etcd.clients[0]}"
    put = ["etcdctl", f"--endpoints={client}", "put", "snowmelt/keys/store/copying"]
    subprocess.run([*put, json.dumps(mark)], check=True, env={"ETCDCTL_API": "3"})
    delete = ["etcdctl", f"--endpoints={client}", "del", "--prefix", "snowmelt/keys/functions/"]
    subprocess.run(delete, check=True, env={"ETCDCTL_API": "3"})
    many = {"SNOWMELT_STORE_URL": url, "SNOWMELT_STORE_FOLDER": str(folder / "shared")}
    control = at(platform, folder / "state-2", **many)
    control.run("up").failed_with("SM-0541", "incomplete copy")
    assert copied(platform, state, url) == there

    up(control)
    assert seen(control, made) == before
    assert json.loads(control.run("fn", "call", "f", "--data", "21").succeeded().out) == 42
    back = folder / "state-3"
    refused(platform, url, back, "SM-0529", "one at")
    assert ends(control, made) == ['"late"'] * 3
    control.run("down").succeeded()

    moved = copied(platform, url, back)
    assert moved["records"] >= there["records"]
    alone = at(platform, back)
    up(alone)
    assert seen(alone, made) == before
    assert ends(alone, made) == ['"late"'] * 3
    assert json.loads(alone.run("fn", "call", "f", "--data", "21").succeeded().out) == 42
