"""Logins of people: an issuer over TLS, and a platform that accepts its tokens."""

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import PYTHON, Snowmelt, wait_for
from issuer import Issuer, encoded, issuing
from test_remote_leases import Platform, certificates, served

RULES = """
[[issuer]]
url = "{url}"
audience = "snowmelt"
client_id = "snowmelt-cli"
ca = "{authority}"
clock_skew = "1s"

[[issuer.rules]]
claims = {{ groups = "acme-admins" }}
tenant = "acme"
role = "administrator"

[[issuer.rules]]
claims = {{ groups = "*-developers" }}
tenant = "{{groups}}"
role = "developer"

[[issuer.rules]]
claims = {{ groups = "callers", email = "*@acme.example" }}
tenant = "acme"
role = "caller"
grants = ["score-*"]

[[issuer.rules]]
claims = {{ sub = "operator" }}
role = "operator"
"""

WAITS = """
import time
import snowmelt as sm

@sm.udf(timeout="10m")
def waits(n: int) -> int:
    time.sleep(n)
    return n
"""


@dataclass
class Company:
    """A platform, its issuer, and a user on another host."""

    platform: Platform
    issuer: Issuer
    authority: Path
    user: Snowmelt

    def ask(
        self, token: str | None, path: str = "/v1/functions", more: str = ""
    ) -> tuple[int, Any]:
        return self.platform.ask("GET", path, token, more)

    def log_in(self, *arguments: object) -> "tuple[subprocess.Popen[str], str]":
        """A login that waits for a person, and its code."""
        at = ("--issuer-ca", self.authority, "--ca", self.platform.authority)
        process = self.user.start("login", *at, *arguments)
        assert process.stderr is not None
        lines = [process.stderr.readline().split() for _ in range(2)]
        assert lines[0] == ["open", f"{self.issuer.url}/device"], lines
        return process, lines[1][1]


@pytest.fixture
def company(alone: Snowmelt, tmp_path: Path) -> Iterator[Company]:
    of_issuer, home = tmp_path / "issuer", tmp_path / "home"
    of_issuer.mkdir()
    home.mkdir()
    certificate, key, authority = certificates(of_issuer)
    with ExitStack() as stack:
        issuer = stack.enter_context(issuing(of_issuer, certificate, key))
        rules = tmp_path / "issuers.toml"
        rules.write_text(RULES.format(url=issuer.url, authority=authority))
        more = ("--tls-issuers", rules)
        platform = stack.enter_context(served(alone, tmp_path, more=more))
        user = Snowmelt(home, {"XDG_CONFIG_HOME": str(home), "HOME": str(home)})
        yield Company(platform, issuer, authority, user)


def refused(answer: tuple[int, Any], status: int, code: str, words: str = "") -> None:
    assert (answer[0], answer[1]["code"]) == (status, code), answer
    assert words in answer[1]["message"], answer


def test_a_person_logs_in_and_works(company: Company) -> None:
    issuer, user, url = company.issuer, company.user, company.platform.url
    # A person who refuses.
    process, code = company.log_in("--url", url, "--context", "other")
    issuer.waiting[issuer.codes[code]] = ["access_denied"]
    user.finish(process).failed_with("SM-0525", "access_denied")
    # Ctrl-C, while the command waits.
    process, code = company.log_in("--url", url, "--context", "other")
    process.send_signal(signal.SIGINT)
    assert user.finish(process).code == 130
    # One who takes a while, at an issuer that is asked too often.
    issuer.polls.clear()
    process, code = company.log_in("--url", url, "--context", "prod")
    issuer.decide(code)
    done = user.finish(process).succeeded()
    assert "logged in at" in done.err
    waited = [after - before for before, after in zip(issuer.polls, issuer.polls[1:], strict=False)]
    assert len(waited) == 2 and waited[0] > 0.9 and waited[1] > 5.9, waited

    # The login works for the command and for Python, as the current context.
    assert user.rows("select 1 + 1 as n") == [{"n": 2}]
    shown = user.run("config", "show", "--origin").succeeded().out
    assert 'context = "prod"' in shown and "current context of" in shown and "context prod" in shown
    listed = json.loads(user.run("context", "ls", "-o", "json").succeeded().out)
    assert [(each["name"], each["is_current"]) for each in listed] == [
        ("local", False),
        ("prod", True),
    ]
    for connect in ("", "sm.connect(context='prod')\n"):
        program = f"import snowmelt as sm\n{connect}print(sm.sql('select 3 as n').rows())"
        assert "3" in user.python(program).succeeded().out
    # Files that others cannot read, and no token in what is shown.
    files = [path for path in (user.folder / "snowmelt").rglob("*") if path.is_file()]
    saved = next(path for path in files if path.name == "prod.json")
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}, files
    assert stat.S_IMODE(saved.parent.stat().st_mode) == 0o700
    token = json.loads(saved.read_text())["token"]
    for command in (("context", "ls"), ("context", "show"), ("config", "show", "--origin")):
        assert token not in user.run(*command).out
    assert user.run("context", "token").succeeded().out.strip() == token

    # Its token is over: of many commands at once, one renews it.
    kept = json.loads(saved.read_text())
    saved.write_text(json.dumps(kept | {"expires_ms": 1}))
    before = issuer.requests["/token_endpoint"]
    commands = [user.start("udf", "ls") for _ in range(4)]
    for command in commands:
        user.finish(command).succeeded()
    assert issuer.requests["/token_endpoint"] - before == 1 and issuer.thefts == 0

    # A variable and an option come first; a context of another name is missing.
    other = Snowmelt(user.folder, user.environment | {"SNOWMELT_CONTEXT": "local"})
    assert "current context" not in other.run("config", "show", "--origin").succeeded().out
    assert other.run("--context", "prod", "udf", "ls").succeeded()
    user.run("--context", "prid", "udf", "ls").failed_with("SM-0110", "prid")
    user.run("--context", "prod", "--url", url, "udf", "ls").failed_with("SM-0110", "either")

    # The issuer ends the session.
    saved.write_text(json.dumps(json.loads(saved.read_text()) | {"expires_ms": 1}))
    issuer.logins.clear()
    user.run("udf", "ls").failed_with("SM-0525", "the session has ended")
    user.run("logout").succeeded()
    assert not saved.exists()
    user.run("udf", "ls").failed_with("SM-0525", "nobody has logged in")
    user.run("logout").failed_with("SM-0525")


def test_claims_give_tenants_and_roles(company: Company) -> None:
    issuer, ask = company.issuer, company.ask
    administrator = issuer.token(sub="ad", groups=["acme-admins", "sea-developers"])
    assert ask(administrator, "/v1/keys")[0] == 200
    made = company.platform.ask(
        "POST", "/v1/keys", administrator, "Content-Length: 18\r\n", '{"role": "reader"}'
    )
    assert made[1]["key"]["created_by"] == f"ad at {issuer.url}"
    tenant = "snowmelt-tenant: {}\r\n"
    sea = tenant.format("sea")
    refused(ask(administrator, "/v1/keys", sea), 403, "SM-0518", "`developer`")
    assert ask(administrator, "/v1/functions", sea) == (200, [])
    # A tenant that the claims do not give: in the header, and by the pattern.
    refused(ask(administrator, more=tenant.format("other")), 403, "SM-0513", "acts for `acme`")
    for groups in (["staff"], ["callers"], [], "x"):
        refused(ask(issuer.token(groups=groups)), 403, "SM-0513", "no rule")
    for group in ("uid-0-developers", "../-developers"):
        refused(ask(issuer.token(groups=[group])), 403, "SM-0513", "no rule")
    caller = issuer.token(groups=["callers"], email="x@acme.example")
    refused(ask(caller, "/v1/functions/train"), 403, "SM-0518", "`score-*`")
    operator = issuer.token(sub="operator", groups=[])
    assert ask(operator, "/v1/status")[0] == 200
    assert ask(operator, more=tenant.format("other"))[0] == 200
    # Keys work beside tokens.
    assert ask(company.platform.token)[0] == 200
    offered = ask(None, "/v1/login")[1]["issuers"]
    assert [(each["issuer"], each["client_id"]) for each in offered] == [
        (issuer.url, "snowmelt-cli")
    ]


def test_tokens_that_are_not_the_issuers_are_refused(company: Company) -> None:
    issuer, ask = company.issuer, company.ask
    good = issuer.token()
    assert ask(good)[0] == 200
    head, claims, signature = good.split(".")
    now = int(time.time())
    forged = {
        "expired": issuer.token(exp=now - 5),
        "issued in the future": issuer.token(iat=now + 60),
        "not valid yet": issuer.token(nbf=now + 60),
        "another audience": issuer.token(aud="other"),
        "not configured": issuer.token(iss="https://login.example"),
        "no key with this": issuer.token({"kid": "other"}),
        "algorithm": f"{encoded({'alg': 'none'})}.{claims}.",
        "too long": issuer.token(note="x" * 13_000),
    }
    forged["signature is wrong"] = (
        f"{head}.{issuer.token(sub='operator').split('.')[1]}.{signature}"
    )
    for why, token in forged.items():
        refused(ask(token), 401, "SM-0515", why)
    # Another place than the header, and two headers of which a proxy would see one.
    for path in (f"/v1/functions?access_token={good}", f"/v1/functions?token={good}"):
        refused(ask(None, path), 401, "SM-0515", "no key")
    more = f"Authorization: Bearer {good}\r\n"
    refused(ask(company.platform.token, more=more), 401, "SM-0515", "more than one")

    # Unknown keys, as many as come, ask the issuer once in five seconds.
    asked = issuer.requests["/keys"]
    began = time.monotonic()
    tokens = [f"{encoded({'alg': 'RS256', 'kid': str(n)})}.{claims}.{signature}" for n in range(40)]
    for token in tokens:
        refused(ask(token), 401, "SM-0515", "no key with this")
    elapsed = time.monotonic() - began
    assert issuer.requests["/keys"] - asked <= 1 + elapsed / 5
    # A new key is found, and the old one is no longer accepted.
    issuer.rotate()
    wait_for("the new key", lambda: ask(issuer.token())[0] == 200, pause=0.5)
    refused(ask(good), 401, "SM-0515", "no key with this")
    # What is known works while the issuer is down.
    token = issuer.token()
    issuer.stop()
    assert ask(token)[0] == 200
    refused(ask(issuer.token({"kid": "other"})), 401, "SM-0515")
    # A server that knows no keys yet cannot tell.
    company.platform.restart()
    refused(ask(token), 503, "SM-0524", issuer.url)
    assert ask(company.platform.token)[0] == 200
    issuer.start()
    wait_for("the issuer", lambda: ask(token)[0] == 200, pause=0.5)


def test_what_a_token_has_begun_ends_with_it(company: Company, tmp_path: Path) -> None:
    user, platform = company.user, company.platform
    code = tmp_path / "waits.py"
    code.write_text(WAITS)
    key = tmp_path / "short.token"
    key.write_text("x" * 16)
    at = ("--url", platform.url, "--ca", platform.authority, "--token-file", key)
    user.run("context", "set", "short", *at).succeeded()
    company.issuer.lasts = 300
    key.write_text(company.issuer.token())
    environment = {"PYTHONPATH": str(PYTHON), "PATH": os.environ["PATH"]}
    user.environment.update(environment)
    user.rows("select waits(0) as n", "--udf", code)
    # With the allowed difference of clocks.
    company.issuer.lasts = 4
    key.write_text(company.issuer.token())
    began = time.monotonic()
    ended = user.sql("select waits(600) as n", "--udf", code)
    assert ended.code != 0 and 3 < time.monotonic() - began < 40, ended
    wait_for("the instance to end", lambda: platform.busy() == 0)
    refused(company.ask(key.read_text()), 401, "SM-0515", "expired")
