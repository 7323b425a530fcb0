"""A company of three tenants on a cluster of three controls and four hosts, with logins by OIDC."""

import itertools
import json
import signal
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from conftest import short_folder, wait_for
from controls import Controls, controls, free_port, replaced
from issuer import Issuer, issuing
from test_remote_leases import certificates

TENANTS = {"acme": 3, "blue": 5, "coral": 7}
ROLES = ("administrator", "developer", "caller", "reader")
HOSTS = ("h1", "h2", "h3", "h4")
# Each tenant has a function of the same name, which multiplies by a number of its own.
CODE = "def handler(event):\n    print('called with', event)\n    return event * {}\n"
RULE = """
[[issuer.rules]]
claims = {{ groups = "{tenant}-{role}" }}
tenant = "{tenant}"
role = "{role}"
"""
ISSUER = """
[[issuer]]
url = "{url}"
audience = "snowmelt"
client_id = "snowmelt-cli"
ca = "{authority}"

[[issuer.rules]]
claims = {{ groups = "operators" }}
role = "operator"
"""
# What each role may ask, with the status of an answer that is not a refusal.
ASKED: dict[str, tuple[str, str, Any, int]] = {
    "look": ("GET", "/v1/functions/f", None, 200),
    "call": ("POST", "/v1/functions/f/invocations", {"event": 2}, 200),
    "read": ("GET", "/v1/functions/f/logs", None, 200),
    "administer": ("GET", "/v1/keys", None, 200),
    "operate": ("GET", "/v1/hosts", None, 200),
}
RIGHTS = {
    "reader": {"look", "read"},
    "caller": {"look", "call"},
    "developer": {"look", "call", "read"},
    "administrator": {"look", "call", "read", "administer"},
    "operator": set(ASKED),
}
QUERY = "select sum(triple(range)) as n from range(0, 1000)"
UDF = """
import snowmelt as sm

@sm.udf(deterministic=True)
def triple(n: int) -> int:
    return n * 3
"""


@dataclass
class Company:
    """A cluster that clients reach by the TLS addresses of its controls."""

    cluster: Controls
    ports: list[int]
    issuer: Issuer
    trust: ssl.SSLContext
    tokens: dict[str, str] = field(default_factory=dict)
    turns: Iterator[int] = field(default_factory=itertools.count)

    def token(self, group: str) -> str:
        """A token of a person in a group, for as long as the test needs."""
        if group not in self.tokens:
            self.tokens[group] = self.issuer.token(sub=group, groups=[group])
        return self.tokens[group]

    def ask(
        self, token: str, method: str, path: str, body: Any = None, tenant: str | None = None
    ) -> tuple[int, Any]:
        """The answer of the control that leads, by way of any. `OSError` if none leads; a request
        that may have arrived is not repeated."""
        headers = {"Authorization": f"Bearer {token}"}
        if tenant is not None:
            headers["Snowmelt-Tenant"] = tenant
        text = None if body is None else json.dumps(body)
        # Each request begins with another control.
        first = next(self.turns) % len(self.ports)
        for port in self.ports[first:] + self.ports[:first]:
            connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=self.trust)
            try:
                connection.connect()
            except OSError:
                continue
            try:
                connection.request(method, path, text, headers)
                answer = connection.getresponse()
                content = answer.read()
            except HTTPException as error:
                raise OSError(error) from error
            finally:
                connection.close()
            said = json.loads(content) if content else None
            if answer.status == 503 and said["code"] == "SM-0529":
                continue
            return answer.status, said
        raise OSError("no control leads")

    def until(self, *arguments: Any, **options: Any) -> tuple[int, Any]:
        """The answer, of a request that may be repeated."""

        def asked() -> tuple[int, Any] | None:
            try:
                return self.ask(*arguments, **options)
            except OSError:
                return None

        answer: tuple[int, Any] = wait_for(f"an answer to {arguments[1:]}", asked)
        return answer


@pytest.fixture
def company(machine: None) -> Iterator[Company]:
    names = ["one", "two", "three"]
    ports = {name: free_port() for name in names}
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        certificate, key, authority = certificates(folder)
        issuer = stack.enter_context(issuing(folder / "issuer", certificate, key))
        rules = ISSUER.format(url=issuer.url, authority=authority)
        for tenant in TENANTS:
            rules += "".join(RULE.format(tenant=tenant, role=role) for role in ROLES)
        (folder / "issuers.toml").write_text(rules)
        tls = [
            "--tls-cert",
            certificate,
            "--tls-key",
            key,
            "--tls-issuers",
            folder / "issuers.toml",
        ]
        more = {
            name: ["--tls-listen", f"127.0.0.1:{port}", *map(str, tls)]
            for name, port in ports.items()
        }
        cluster = stack.enter_context(controls(folder, names, more))
        for host in HOSTS:
            cluster.join(host)
        trust = ssl.create_default_context(cafile=authority)
        company = Company(cluster, list(ports.values()), issuer, trust)
        wait_for("all hosts", lambda: hosts(company) >= set(HOSTS))
        yield company


def hosts(company: Company) -> set[str]:
    status, listed = company.until(company.token("operators"), "GET", "/v1/hosts")
    assert status == 200, listed
    return {host["name"] for host in listed if host["heard_ms"] < 5000}


class Callers(threading.Thread):
    """Makes asynchronous calls for a tenant until it is told to stop."""

    def __init__(self, company: Company, tenant: str) -> None:
        super().__init__()
        self.company = company
        self.tenant = tenant
        self.stops = threading.Event()
        self.acknowledged: dict[str, int] = {}

    def run(self) -> None:
        token = self.company.token(f"{self.tenant}-caller")
        event = 0
        while not self.stops.is_set():
            event += 1
            body = {"event": event, "asynchronous": True}
            try:
                status, said = self.company.ask(token, "POST", ASKED["call"][1], body)
            except OSError:
                time.sleep(0.05)
                continue
            if status == 202:
                self.acknowledged[said["id"]] = event


def check_roles(company: Company) -> None:
    """Each role of each tenant may do what it is for, and no more."""
    for tenant, factor in TENANTS.items():
        for role in (*ROLES, "operator"):
            is_operator = role == "operator"
            token = company.token("operators" if is_operator else f"{tenant}-{role}")
            of = tenant if is_operator else None
            for right, (method, path, body, done) in ASKED.items():
                status, said = company.until(token, method, path, body, tenant=of)
                allowed = right in RIGHTS[role]
                # What only operators may do is not there for others.
                refused = 404 if right == "operate" else 403
                assert status == (done if allowed else refused), (tenant, role, right, said)
                if right == "call" and allowed:
                    assert said["result"] == 2 * factor, said


def test_a_company_works_while_a_control_is_killed(company: Company, tmp_path: Path) -> None:
    cluster = company.cluster
    for tenant, factor in TENANTS.items():
        source = {"kind": "source", "file": "f.py", "text": CODE.format(factor)}
        deploy = {"name": "f", "code": source}
        token = company.token(f"{tenant}-developer")
        status, said = company.until(token, "POST", "/v1/functions", deploy)
        assert status == 201, said
    check_roles(company)
    # A key for a program, and one that was taken back.
    administrator = company.token("acme-administrator")
    made = [company.until(administrator, "POST", "/v1/keys", {"role": "caller"}) for _ in range(2)]
    assert all(status == 201 for status, _ in made), made
    kept, revoked = (said["text"] for _, said in made)
    at = f"/v1/keys/{made[1][1]['key']['id']}"
    assert company.until(administrator, "DELETE", at)[0] in (200, 204)

    callers = [Callers(company, tenant) for tenant in TENANTS]
    for caller in callers:
        caller.start()
    wait_for("calls of all", lambda: all(len(each.acknowledged) > 40 for each in callers))
    old = str(cluster.leader())
    cluster.signal(old, signal.SIGKILL)
    before = [len(each.acknowledged) for each in callers]
    leader, seconds = replaced(cluster, old)
    print(f"{leader} leads in the place of {old} after {seconds:.1f} s")

    def goes_on() -> bool:
        counts = zip(callers, before, strict=True)
        return all(len(each.acknowledged) > count + 40 for each, count in counts)

    wait_for("calls of all, of the next control", goes_on)
    for caller in callers:
        caller.stops.set()
    for caller in callers:
        caller.join()

    # Nothing that was acknowledged is lost, and each tenant has its own answers.
    warned: Counter[str] = Counter()
    for caller in callers:
        token = company.token(f"{caller.tenant}-caller")
        for identity, event in caller.acknowledged.items():
            path = f"/v1/invocations/{identity}"

            def ended(token: str = token, path: str = path) -> Any:
                status, said = company.until(token, "GET", path)
                assert status == 200, said
                return said if said["state"] != "running" else None

            done = wait_for(f"call {identity}", ended)
            assert done["state"] == "succeeded", done
            assert done["result"] == event * TENANTS[caller.tenant], done
            warned += Counter(warning["code"] for warning in done.get("warnings", []))
        other = company.token("blue-caller" if caller.tenant == "acme" else "acme-caller")
        stolen = next(iter(caller.acknowledged))
        assert company.until(other, "GET", f"/v1/invocations/{stolen}")[0] == 404
    count = sum(len(caller.acknowledged) for caller in callers)
    print(f"{count} calls, {warned} of them with a warning")
    assert set(warned) <= {"SM-0720"}

    # The next control knows the hosts, the roles, and which keys are over.
    wait_for("all hosts at the next control", lambda: hosts(company) >= set(HOSTS))
    check_roles(company)
    assert company.until(kept, "GET", "/v1/functions/f")[0] == 200
    assert company.until(revoked, "GET", "/v1/functions/f")[0] == 401
    # A query of its hosts, by the command.
    udf = tmp_path / "udf.py"
    udf.write_text(UDF)
    rows = cluster.controls[leader].rows(QUERY, "--udf", udf)
    assert rows == [{"n": 3 * 499_500}]
    cluster.up(old)
    assert "stands by" in cluster.store(old)
