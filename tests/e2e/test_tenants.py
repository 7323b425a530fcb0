"""Tenants: users of one server who deploy functions of the same name share nothing."""

import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for

MEMBER = 65534
GROUP = 64322
OWN = f"uid-{MEMBER}"

# A request as another user: method, path, body and tenant come as JSON.
ASK = """import http.client, json, socket, sys
path, method, target, body, tenant = json.loads(sys.argv[1])
connection = http.client.HTTPConnection("x")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
headers = {"snowmelt-tenant": tenant} if tenant else {}
connection.request(method, target, body=body, headers=headers)
response = connection.getresponse()
print(json.dumps([response.status, response.read().decode()]))
"""


class User:
    """A user of the server, by its socket."""

    def __init__(self, server: Snowmelt, tenant: str | None, uid: int = 0) -> None:
        self.socket = server.folder / "state/snowmelt.sock"
        self.tenant, self.uid = tenant, uid

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        text = None if body is None else json.dumps(body)
        ask = self._away if self.uid else self._here
        status, answer = ask(method, path, text)
        return status, json.loads(answer) if answer else None

    def _here(self, method: str, path: str, body: str | None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("x")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.socket))
        headers = {} if self.tenant is None else {"snowmelt-tenant": self.tenant}
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def _away(self, method: str, path: str, body: str | None) -> tuple[int, str]:
        asked = json.dumps([str(self.socket), method, path, body, self.tenant])
        done = subprocess.run(
            ["/usr/bin/python3", "-c", ASK, asked],
            user=self.uid,
            group=GROUP,
            extra_groups=[],
            capture_output=True,
            text=True,
            cwd="/",
            check=True,
        )
        status, answer = json.loads(done.stdout)
        return status, answer

    def deploy(self, answer: str, **more: Any) -> tuple[int, Any]:
        text = f"def handler(event):\n    print({answer!r})\n    return {answer!r}\n"
        code = {"kind": "source", "file": "f.py", "text": text}
        return self.ask("POST", "/v1/functions", {"name": "f", "code": code, **more})

    def call(self, **more: Any) -> tuple[int, Any]:
        return self.ask("POST", "/v1/functions/f/invocations", {"event": None, **more})

    def result(self, call: str) -> Any:
        """The result of an asynchronous call, once it has ended."""
        path = f"/v1/invocations/{call}"
        wait_for("the call", lambda: self.ask("GET", path)[1]["state"] != "running")
        return self.ask("GET", path)[1]["result"]

    def names(self) -> list[str]:
        return [function["name"] for function in self.ask("GET", "/v1/functions")[1]]

    def logs(self) -> list[str]:
        entries = self.ask("GET", "/v1/functions/f/logs")[1]
        return [line for entry in entries for line in entry["text"].splitlines()]


@pytest.fixture
def server(alone: Snowmelt) -> Iterator[Snowmelt]:
    """A server that members of a group may use."""
    alone.folder.chmod(0o755)
    alone.environment = {"SNOWMELT_GROUP": str(GROUP)}
    alone.run("up").succeeded()
    yield alone
    alone.run("down")


def test_functions_of_the_same_name_of_different_users_share_nothing(server: Snowmelt) -> None:
    answers = {None: "of root", "acme": "of acme", OWN: "of the member"}
    users = [User(server, None), User(server, "acme"), User(server, None, MEMBER)]
    calls = []
    for user, answer in zip(users, answers.values(), strict=True):
        status, _ = user.ask("GET", "/v1/functions/f")
        assert status == 404, "the function of another tenant is not visible"
        assert user.deploy(answer)[0] == 201
    for user, answer in zip(users, answers.values(), strict=True):
        assert user.call()[1]["result"] == answer
        assert user.names() == ["f"]
        assert set(user.logs()) == {answer}
        status, accepted = user.call(asynchronous=True)
        assert status == 202
        calls.append(accepted["id"])
    for user, own, answer in zip(users, calls, answers.values(), strict=True):
        assert user.result(own) == answer
        for other in set(calls) - {own}:
            status, problem = user.ask("GET", f"/v1/invocations/{other}")
            assert (status, problem["code"]) == (404, "SM-0223")
    # A removal does not affect the other tenants.
    assert users[0].ask("DELETE", "/v1/functions/f")[0] == 204
    assert users[0].call()[0] == 404
    assert users[0].ask("GET", "/v1/functions/f/logs")[0] == 404
    for user, answer in list(zip(users, answers.values(), strict=True))[1:]:
        assert user.call()[1]["result"] == answer
        assert answer in user.logs()


def test_a_user_acts_for_its_own_tenant_only(server: Snowmelt) -> None:
    assert User(server, None).deploy("of root")[0] == 201
    for tenant in ("default", "acme", "uid-0"):
        thief = User(server, tenant, MEMBER)
        for status, problem in (
            thief.call(),
            thief.deploy("of the thief"),
            thief.ask("GET", "/v1/functions"),
            thief.ask("GET", "/v1/functions/f/logs"),
            thief.ask("DELETE", "/v1/functions/f"),
            thief.ask("POST", "/v1/functions/f/bursts", {"events": [1]}),
        ):
            assert (status, problem["code"]) == (403, "SM-0513"), problem
    member = User(server, OWN, MEMBER)
    status, problem = member.deploy("of the member", tenant="default")
    assert (status, problem["code"]) == (403, "SM-0513"), "the body cannot choose the tenant"
    assert member.deploy("of the member", tenant=OWN)[0] == 201
    # Root may act for every tenant.
    assert User(server, OWN).call()[1]["result"] == "of the member"
    assert User(server, None).call()[1]["result"] == "of root"


def test_tenants_stay_separate_after_a_restart_and_for_commands(
    server: Snowmelt, tmp_path: Path
) -> None:
    file = tmp_path / "f.py"
    for tenant in ("acme", "other"):
        file.write_text(f"def handler(event):\n    return {tenant!r}\n")
        server.run("--tenant", tenant, "fn", "deploy", "f", file).succeeded()
    member = User(server, None, MEMBER)
    assert member.deploy("of the member")[0] == 201
    server.run("down").succeeded()
    server.run("up").succeeded()
    for tenant in ("acme", "other"):
        answer = server.run("fn", "call", "f", "--tenant", tenant).succeeded().out
        assert json.loads(answer) == tenant
    assert member.call()[1]["result"] == "of the member"
    server.run("fn", "call", "f").failed_with("SM-0220")
    assert json.loads(server.run("fn", "ls", "-o", "json").succeeded().out) == []
    server.environment["SNOWMELT_TENANT"] = "acme"
    assert json.loads(server.run("fn", "call", "f").succeeded().out) == "acme"
