"""`snowmelt prune`: what nothing uses goes, what is in use stays, also after a kill."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt
from test_remote_leases import served

import snowmelt as sm

CODE = """import {module}

def handler(event):
    return {module}.__name__
"""


@pytest.fixture
def up(alone: Snowmelt) -> Iterator[Snowmelt]:
    alone.run("up").succeeded()
    yield alone
    alone.run("down")


def pid(snowmelt: Snowmelt) -> int:
    return int(json.loads(snowmelt.run("status", "-o", "json").succeeded().out)["pid"])


def prune(snowmelt: Snowmelt, *arguments: object) -> dict[str, dict[str, Any]]:
    done = snowmelt.run("prune", "-o", "json", *arguments).succeeded()
    return {part["name"]: part for part in json.loads(done.out)}


def deploy(snowmelt: Snowmelt, tmp_path: Path, name: str, module: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(CODE.format(module=module))
    snowmelt.run("fn", "deploy", name, file, "--package", module).succeeded()


def test_what_is_deployed_stays_and_the_rest_goes(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, "kept", "six")
    deploy(up, tmp_path, "gone", "idna")
    up.run("fn", "rm", "gone").succeeded()
    call = up.run("fn", "call", "kept", "--async").succeeded().out.strip()
    up.run("fn", "result", call, "--wait").succeeded()
    # After a restart no function that is not called holds its packages.
    up.run("down").succeeded()
    up.run("up").succeeded()
    counted = prune(up)
    assert counted["packages"]["items"] >= 2, counted
    assert counted["packages"]["bytes"] > 0 and counted["results"]["items"] == 0
    assert prune(up) == counted, "a count removes nothing"
    removed = prune(up, "--yes", "--results")
    assert removed["packages"]["items"] == counted["packages"]["items"]
    assert removed["results"]["items"] == 1
    assert up.run("fn", "result", call).code != 0
    assert prune(up)["packages"]["items"] == 0
    up.environment["UV_INDEX_URL"] = "http://127.0.0.1:9/simple"
    assert json.loads(up.run("fn", "call", "kept").succeeded().out) == "six"


def test_a_prune_that_is_killed_leaves_whole_things(up: Snowmelt, tmp_path: Path) -> None:
    deploy(up, tmp_path, "kept", "six")
    deploy(up, tmp_path, "gone", "idna")
    up.run("fn", "rm", "gone").succeeded()
    up.run("down").succeeded()
    up.run("up").succeeded()
    pruning = up.start("prune", "--yes")
    os.kill(pid(up), signal.SIGKILL)
    up.finish(pruning)
    up.run("up").succeeded()
    assert json.loads(up.run("fn", "call", "kept").succeeded().out) == "six"
    prune(up, "--yes")
    assert prune(up)["packages"]["items"] == 0
    deploy(up, tmp_path, "gone", "idna")
    assert json.loads(up.run("fn", "call", "gone").succeeded().out) == "idna"


def test_options_are_refused_that_say_two_things(alone: Snowmelt) -> None:
    refused = alone.run("prune", "--yes", "--dry-run")
    assert refused.code == 2 and "SM-0110" in refused.err


@sm.udf
def grade(amount: float) -> float:
    return round(amount * 2)


def test_a_client_of_another_host_prunes_what_its_tenant_has(
    alone: Snowmelt, tmp_path: Path
) -> None:
    with served(alone, tmp_path) as platform:
        tokens = [platform.token, alone.run("token", "new", "other").succeeded().out.strip()]

        def parts(token: str, **options: bool) -> dict[str, int]:
            sm.connect(platform.url, token=token, ca=platform.authority)
            return {part["name"]: part["items"] for part in sm.prune(**options)}

        for token in tokens:
            sm.connect(platform.url, token=token, ca=platform.authority)
            assert [grade.register(), grade.register()] == [1, 2]
        expected = {"versions": 1, "results": 0, "files": 0}
        assert [parts(token) for token in tokens] == [expected, expected]
        assert parts(tokens[0], remove=True) == expected
        assert [parts(token)["versions"] for token in tokens] == [0, 1]
        assert parts(tokens[0], remove=True, results=True) == expected | {"versions": 0}
        assert parts(tokens[1])["versions"] == 1
        with pytest.raises(sm.PlatformError, match="SM-0513"):
            sm.prune(tenant="acme")
