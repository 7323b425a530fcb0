"""Keys of clients on other hosts: two tenants, each role, and how keys end."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Snowmelt, wait_for
from test_remote_leases import Platform, grade, served

import snowmelt as sm
from snowmelt.engines import remote

CODE = "def handler(event):\n    print(event)\n    return event\n"
DEPLOY = {"name": "f", "code": {"kind": "source", "file": "f.py", "text": CODE}}

# What each role may ask of `acme`, with the status of an answer that is not a refusal.
ASKED = {
    "look": ("GET", "/v1/functions/score-a", None, 200),
    "call": ("POST", "/v1/functions/score-a/invocations", {"event": 1}, 200),
    "read": ("GET", "/v1/functions/score-a/logs", None, 200),
    "develop": ("POST", "/v1/functions", DEPLOY, 201),
    "administer": ("GET", "/v1/keys", None, 200),
    "operate": ("GET", "/v1/hosts", None, 200),
}
RIGHTS = {
    "reader": {"look", "read"},
    "caller": {"look", "call"},
    "developer": {"look", "call", "read", "develop"},
    "administrator": {"look", "call", "read", "develop", "administer"},
    "operator": set(ASKED),
}


@sm.udf(timeout="10m")
def waits(n: int) -> int:
    import time

    time.sleep(n)
    return n


@pytest.fixture
def company(alone: Snowmelt, tmp_path: Path) -> Iterator[Platform]:
    """A server with a function of each of two tenants."""
    with served(alone, tmp_path) as platform:
        code = tmp_path / "f.py"
        code.write_text(CODE)
        for tenant in ("acme", "other"):
            for name in ("score-a", "train"):
                deploy = ("fn", "deploy", name, code, "--tenant", tenant)
                alone.run(*deploy).succeeded()
        yield platform


def new(platform: Platform, *arguments: str) -> str:
    return platform.snowmelt.run("token", "new", *arguments).succeeded().out.strip()


def identifier(key: str) -> str:
    return key.split("-")[1]


def ask(
    platform: Platform, key: str, method: str, path: str, body: Any = None, more: str = ""
) -> Any:
    """The status and the JSON of an answer."""
    text = "" if body is None else json.dumps(body)
    return platform.ask(method, path, key, f"{more}Content-Length: {len(text)}\r\n", text)


def test_each_role_may_do_what_it_is_for(company: Platform) -> None:
    for role, rights in RIGHTS.items():
        operates = role == "operator"
        key = new(company, *([] if operates else ["acme"]), "--role", role)
        tenant = "snowmelt-tenant: acme\r\n" if operates else ""
        for right, (method, path, body, done) in ASKED.items():
            status, answer = ask(company, key, method, path, body, tenant)
            # The network does not have what only operators reach.
            refused = 404 if right == "operate" else 403
            assert status == (done if right in rights else refused), (role, right, answer)
            if status == 403:
                assert answer["code"] == "SM-0518" and f"`{role}`" in answer["message"], answer


def test_a_key_is_for_its_tenant_and_its_names(company: Platform) -> None:
    key = new(company, "acme", "--role", "developer", "--grant", "score-*", "--note", "a shop")
    status, listed = ask(company, key, "GET", "/v1/functions")
    assert (status, [f["name"] for f in listed]) == (200, ["score-a"])
    assert {function["tenant"] for function in listed} == {"acme"}
    for path, body in (
        ("/v1/functions/train/invocations", {"event": 1}),
        ("/v1/functions", DEPLOY),
        ("/v1/bursts", {"function": DEPLOY, "events": [1]}),
    ):
        status, refused = ask(company, key, "POST", path, body)
        assert (status, refused["code"]) == (403, "SM-0518"), refused
        assert "`score-*`" in refused["message"]
    # A foreign tenant, in the header and in the body.
    status, refused = ask(company, key, "GET", "/v1/functions", None, "snowmelt-tenant: other\r\n")
    assert (status, refused["code"]) == (403, "SM-0513")
    foreign = DEPLOY | {"name": "score-b", "tenant": "other"}
    status, refused = ask(company, key, "POST", "/v1/functions", foreign)
    assert (status, refused["code"]) == (403, "SM-0513")
    # What the machine would have to reach.
    image = {"name": "score-b", "image": "registry.example/app:v1"}
    status, refused = ask(company, key, "POST", "/v1/functions", image)
    assert (status, refused["code"]) == (403, "SM-0518") and "an image" in refused["message"]
    # Code of one's own, by name.
    for name, code in (("score-b", 201), ("other", 403)):
        assert ask(company, key, "POST", "/v1/functions", DEPLOY | {"name": name})[0] == code


def test_a_caller_leases_what_is_registered_and_brings_no_code(company: Platform) -> None:
    company.connect()
    grade.register()
    sm.connect(company.url, token=new(company, "acme", "--role", "caller"), ca=company.authority)
    expected = grade(1.0, "x")
    assert remote("grade")(pa.array([1.0]), pa.array(["x"])).to_pylist() == [expected]
    with pytest.raises(sm.Error) as refused:
        remote(grade)(pa.array([1.0]), pa.array(["x"]))
    assert refused.value.code == "SM-0518", str(refused.value)


def test_a_key_that_is_revoked_ends_what_it_runs(company: Platform) -> None:
    key = new(company, "acme")
    sm.connect(company.url, token=key, ca=company.authority)
    called = remote(waits)
    assert called(pa.array([0])).to_pylist() == [0]
    failed: list[str] = []

    def call() -> None:
        try:
            called(pa.array([600]))
        except sm.Error as error:
            failed.append(error.code)

    calling = threading.Thread(target=call)
    calling.start()
    wait_for("the call", lambda: company.busy() == 1)
    company.snowmelt.run("token", "revoke", identifier(key)).succeeded()
    calling.join(60)
    assert failed == ["SM-0503"]
    wait_for("the instance to end", lambda: company.busy() == 0)
    status, refused = ask(company, key, "GET", "/v1/functions")
    assert (status, refused["code"]) == (401, "SM-0515")
    again = company.snowmelt.run("token", "revoke", identifier(key))
    again.failed_with("SM-0519", identifier(key))


def test_a_rotated_key_lasts_for_the_overlap(company: Platform) -> None:
    old = new(company, "acme", "--role", "caller", "--grant", "score-*", "--expires", "30d")
    rotate = ("token", "rotate", identifier(old), "--overlap")
    key = company.snowmelt.run(*rotate, "1h").succeeded().out.strip()
    for each in (old, key):
        assert ask(company, each, "GET", "/v1/functions/score-a")[0] == 200
        assert ask(company, each, "GET", "/v1/functions/train")[0] == 403
    # A second time, to end it.
    company.snowmelt.run(*rotate, "0s").succeeded()
    status, refused = ask(company, old, "GET", "/v1/functions/score-a")
    assert (status, refused["code"]) == (401, "SM-0515") and "expired" in refused["message"]
    company.snowmelt.run(*rotate, "1h").failed_with("SM-0110", "has expired")


def test_keys_outlast_a_restart_and_expire(company: Platform) -> None:
    key = new(company, "acme", "--role", "caller", "--expires", "30d", "--note", "web shop")
    brief = new(company, "acme", "--expires", "1s")
    wait_for("its end", lambda: ask(company, brief, "GET", "/v1/functions")[0] == 401)
    assert ask(company, key, "GET", "/v1/functions")[0] == 200
    company.restart()
    assert ask(company, key, "GET", "/v1/functions")[0] == 200
    assert ask(company, brief, "GET", "/v1/functions")[0] == 401
    out = company.snowmelt.run("token", "ls", "-o", "json").succeeded().out
    listed = {made["id"]: made for made in json.loads(out)}
    shown = listed[identifier(key)]
    assert (shown["tenant"], shown["role"], shown["note"]) == ("acme", "caller", "web shop")
    assert shown["used_ms"] and shown["expires_ms"] > shown["created_ms"]
    assert shown["created_by"] == "user 0"
    texts = [key, brief]
    state = [path for path in (company.snowmelt.folder / "state").iterdir() if path.is_file()]
    for path in state:
        written = path.read_bytes()
        assert not [text for text in texts if text.encode() in written], path


def test_wrong_keys_and_wrong_wishes_are_refused(company: Platform) -> None:
    key = new(company, "acme", "--role", "administrator")
    for wrong in (f"{key[:-1]}x", key[:-1], f"snowmelt-{'0' * 16}-{'0' * 64}", "x"):
        status, refused = ask(company, wrong, "GET", "/v1/functions")
        assert (status, refused["code"]) == (401, "SM-0515")
        assert wrong not in json.dumps(refused)
    status, refused = ask(company, key, "POST", "/v1/keys", {"role": "operator"})
    assert status == 400, refused
    status, made = ask(company, key, "POST", "/v1/keys", {"role": "reader"})
    assert status == 201 and made["key"]["created_by"] == f"key {identifier(key)}"
    assert ask(company, made["text"], "GET", "/v1/functions")[0] == 200
    other = new(company, "other", "--role", "administrator")
    path = f"/v1/keys/{identifier(key)}"
    assert ask(company, other, "DELETE", path)[0] == 404
    assert ask(company, key, "DELETE", path)[0] == 204
    assert ask(company, key, "GET", "/v1/keys")[0] == 401
    run = company.snowmelt.run
    run("token", "new", "default").failed_with("SM-0110", "`default`")
    run("token", "new", "acme", "--role", "operator").failed_with("SM-0110", "`acme`")
    run("token", "new", "acme", "--role", "owner").failed_with("SM-0110", "not a role")


def test_a_file_of_tokens_is_for_configuration_management(alone: Snowmelt, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    new = ("token", "new", "acme", "--role", "reader", "--expires", "30d", "--tls-tokens", tokens)
    token = alone.run(*new).succeeded().out.strip()
    assert " reader until=" in tokens.read_text() and token not in tokens.read_text()
    with served(alone, tmp_path, more=("--tls-tokens", tokens)) as platform:
        assert ask(platform, token, "GET", "/v1/functions")[0] == 200
        assert ask(platform, token, "POST", "/v1/functions", DEPLOY)[0] == 403
        tokens.write_text("")
        assert ask(platform, token, "GET", "/v1/functions")[0] == 401
        assert ask(platform, platform.token, "GET", "/v1/functions")[0] == 200
