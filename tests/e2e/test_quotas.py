"""Quotas of tenants: races for the last place, what is refused and what waits, and restarts."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, Snowmelt, wait_for
from test_keys import ask, new
from test_remote_leases import Platform, served

CODE = """
import time

def handler(event):
    time.sleep(event)
    return event
"""
FAST = {"name": "f", "code": {"kind": "source", "file": "f.py", "text": CODE}}
CALL = "/v1/functions/slow/invocations"


@pytest.fixture
def company(alone: Snowmelt, tmp_path: Path) -> Iterator[Platform]:
    """A server with a function of each of two tenants."""
    code = tmp_path / "slow.py"
    code.write_text(CODE)
    with served(alone, tmp_path) as platform:
        for tenant in ("acme", "other"):
            alone.run("fn", "deploy", "slow", code, "--tenant", tenant).succeeded()
        yield platform


def limit(platform: Platform, *limits: str) -> None:
    platform.snowmelt.run("quota", "set", "acme", *limits).succeeded()


def quota(platform: Platform, kind: str) -> dict[str, Any]:
    listed = platform.snowmelt.run("quota", "ls", "--tenant", "acme", "-o", "json").succeeded()
    [summary] = json.loads(listed.out)
    return next(quota for quota in summary["quotas"] if quota["kind"] == kind)


def sql(platform: Platform, query: str, *more: str) -> Result:
    return platform.snowmelt.run("sql", query, "--tenant", "acme", "--workers", "4", *more)


def test_calls_within_quotas(company: Platform) -> None:
    for case in (
        lambda: of_many_requests_for_the_last_place_exactly_one_passes(company, "calls"),
        lambda: of_many_requests_for_the_last_place_exactly_one_passes(company, "instances"),
        lambda: a_client_that_leaves_gives_its_place_back(company),
        lambda: what_was_accepted_waits_for_its_turn(company),
        lambda: calls_begin_at_their_rate(company),
        lambda: only_operators_set_quotas(company),
    ):
        case()
        company.snowmelt.run("quota", "reset", "acme").succeeded()


def of_many_requests_for_the_last_place_exactly_one_passes(company: Platform, kind: str) -> None:
    limit(company, f"{kind}=1")
    key = company.token
    count = 40
    barrier = threading.Barrier(count)

    def call(_: int) -> tuple[int, Any]:
        barrier.wait()
        return ask(company, key, "POST", CALL, {"event": 3})

    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(call, range(count)))
    passed = [answer for status, answer in answers if status == 200]
    refused = [answer for status, answer in answers if status == 429]
    assert (len(passed), len(refused)) == (1, count - 1), answers
    assert {answer["code"] for answer in refused} == {"SM-0533"}
    assert {answer["retry_after_s"] for answer in refused} == {1}
    assert "1 of function slow" in refused[0]["message"], refused[0]
    assert quota(company, kind)["used"] == 0
    assert ask(company, key, "POST", CALL, {"event": 0})[0] == 200
    other = new(company, "other")
    with ThreadPoolExecutor(2) as pool:
        two = list(pool.map(lambda _: ask(company, other, "POST", CALL, {"event": 1})[0], range(2)))
    assert two == [200, 200]


def a_client_that_leaves_gives_its_place_back(company: Platform) -> None:
    limit(company, "calls=1", "instances=1")
    text = json.dumps({"event": 600})
    head = f"POST {CALL} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {company.token}\r\n"
    with company.tls() as connected:
        connected.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
        wait_for("the call", lambda: quota(company, "instances")["used"] == 1)
        assert quota(company, "instances")["by"] == [{"name": "function slow", "used": 1}]
        assert ask(company, company.token, "POST", CALL, {"event": 0})[0] == 429
    wait_for("its place", lambda: quota(company, "calls")["used"] == 0)
    assert quota(company, "instances")["used"] == 0
    assert ask(company, company.token, "POST", CALL, {"event": 0})[0] == 200


def what_was_accepted_waits_for_its_turn(company: Platform) -> None:
    limit(company, "calls=1", "instances=1")
    batch = {"events": [0, 0.2, 0]}
    status, calls = ask(company, company.token, "POST", "/v1/functions/slow/batches", batch)
    assert status == 200
    assert [call["state"] for call in calls] == ["succeeded"] * 3, calls
    later = {"event": 0.2, "asynchronous": True}
    ids = [ask(company, company.token, "POST", CALL, later)[1]["id"] for _ in range(3)]

    def ended() -> bool:
        states = [ask(company, company.token, "GET", f"/v1/invocations/{i}")[1] for i in ids]
        return all(state["state"] == "succeeded" for state in states)

    wait_for("the calls", ended)
    assert quota(company, "calls")["used"] == 0


def calls_begin_at_their_rate(company: Platform) -> None:
    limit(company, "calls_per_second=2")
    time.sleep(1)
    with ThreadPoolExecutor(10) as pool:
        calls = pool.map(
            lambda _: ask(company, company.token, "POST", CALL, {"event": 0})[0], range(10)
        )
    statuses = sorted(calls)
    # Slow machines may begin some a moment later.
    assert statuses[:2] == [200, 200] and statuses.count(429) >= 5, statuses


def test_a_query_has_a_driver_and_a_task_at_least(
    company: Platform, tables: dict[str, Path]
) -> None:
    query = f"select count(*) as n, sum(l_quantity) as q from '{tables['lineitem']}'"
    limit(company, "instances=1")
    refused = sql(company, query).failed_with("SM-0533", "of 1 instances")
    assert not refused.get("retryable"), refused
    limit(company, "instances=2")
    small = sql(company, query, "-o", "json").succeeded()
    limit(company, "instances=none", "queries=0")
    sql(company, query).failed_with("SM-0533", "0 of 0 queries at once")
    limit(company, "queries=1")
    assert sql(company, query, "-o", "json").succeeded().out == small.out
    assert [quota(company, kind)["used"] for kind in ("queries", "instances")] == [0, 0]


def test_names_of_functions_and_limits_outlive_the_server(company: Platform) -> None:
    limit(company, "functions=2", "gib_seconds_per_day=1000000")
    assert ask(company, company.token, "POST", "/v1/functions", FAST)[0] == 201
    third = FAST | {"name": "g"}
    status, refused = ask(company, company.token, "POST", "/v1/functions", third)
    assert (status, refused["code"]) == (403, "SM-0533")
    assert "2 of 2 functions: f, slow" in refused["message"], refused
    assert ask(company, company.token, "POST", CALL, {"event": 3})[0] == 200
    before = quota(company, "gib_seconds_per_day")["used"]
    assert before >= 1
    # Those of the last seconds are lost with a server that is killed.
    time.sleep(6)
    pid = json.loads(company.snowmelt.run("status", "-o", "json").succeeded().out)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for("its end", lambda: company.snowmelt.run("status").code != 0)
    company.snowmelt.run("up", *company.started).succeeded()
    assert quota(company, "gib_seconds_per_day")["used"] >= before
    assert quota(company, "functions") == {
        "kind": "functions",
        "used": 2,
        "limit": 2,
        "own": True,
    }
    assert ask(company, company.token, "POST", "/v1/functions", third)[0] == 403
    assert ask(company, company.token, "DELETE", "/v1/functions/f")[0] == 204
    assert ask(company, company.token, "POST", "/v1/functions", third)[0] == 201
    limit(company, "gib_seconds_per_day=1")
    status, refused = ask(company, company.token, "POST", CALL, {"event": 0})
    assert (status, refused["code"]) == (429, "SM-0533")
    assert 1 <= refused["retry_after_s"] <= 86400


def only_operators_set_quotas(company: Platform) -> None:
    administrator = new(company, "acme", "--role", "administrator")
    limits = {"limits": {"calls": "unlimited"}}
    status, _ = ask(company, administrator, "POST", "/v1/quotas", limits)
    assert status == 404, "the network has it for operators only"
    status, [own] = ask(company, administrator, "GET", "/v1/quotas")
    assert (status, own["tenant"]) == (200, "acme")
    wrong = company.snowmelt.run("quota", "set", "acme", "disc=8")
    assert wrong.code == 2 and "disc" in wrong.err
