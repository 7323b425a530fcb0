"""Three controls on three servers of etcd answer as one, whatever is killed, paused and cut.

Clients set and read quotas of tenants, and deploy and call functions, of any control. The history
of all of it has to be linearisable, which `porcupine` checks.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from conftest import short_folder, wait_for
from controls import Controls, controls, replaced
from test_calls import Unix

CHECKER = Path(__file__).with_name("linearity")
TENANTS = ("acme", "blue", "coral")
FUNCTIONS = ("f", "g")
# A limit that nothing here comes near.
LIMIT = "queries_per_second"
NEVER = 1 << 62
# Errors that say that nothing was done: another control leads, or the store is not reached.
NOTHING_DONE = ("SM-0529", "SM-0526")


@pytest.fixture
def cluster(machine: None) -> Iterator[Controls]:
    with short_folder() as folder, controls(folder, ["one", "two", "three"], servers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("linearity") / "linearity"
    subprocess.run(["go", "build", "-o", program, "."], cwd=CHECKER, check=True)
    return program


class Lost(Exception):
    """An answer that did not come: what was asked for may have been done, or is done later."""


class History:
    """What clients have asked for, and when."""

    def __init__(self, cluster: Controls) -> None:
        self.sockets = [each.folder / "state/snowmelt.sock" for each in cluster.controls.values()]
        self.values = itertools.count(1)
        self.lines: list[dict[str, Any]] = []
        self.stops = threading.Event()
        self.answers = 0
        # Answers that no fault explains.
        self.wrong: list[Any] = []

    def ask(self, method: str, path: str, body: Any, tenant: str) -> Any:
        """The answer of any control; none if nothing was done."""
        try:
            connection = Unix(random.choice(self.sockets))
        except OSError:
            return None
        try:
            connection.sock.settimeout(15)
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Snowmelt-Tenant": tenant})
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as error:
            raise Lost from error
        finally:
            connection.close()
        if answer.status in (200, 201):
            return said
        if said["code"] in NOTHING_DONE:
            return None
        if answer.status < 500:
            self.wrong.append(said)
        raise Lost(said)

    def write(self, client: int, key: str) -> bool:
        """Whether a value was written for certain."""
        value = next(self.values)
        line = {"client": client, "key": key, "write": True, "value": value}
        begun = time.monotonic_ns()
        try:
            if key in TENANTS:
                done = self.ask("POST", "/v1/quotas", {"limits": {LIMIT: {"at_most": value}}}, key)
            else:
                code = {"kind": "source", "file": "f.py", "text": handler(value)}
                done = self.ask("POST", "/v1/functions", {"name": key, "code": code}, "acme")
            ended = time.monotonic_ns()
        except Lost:
            done, ended = True, NEVER
        if done is not None:
            self.lines.append({**line, "begun": begun, "ended": ended})
        return done is not None and ended != NEVER

    def read(self, client: int, key: str) -> None:
        begun = time.monotonic_ns()
        try:
            if key in TENANTS:
                listed = self.ask("GET", "/v1/quotas", None, key)
            else:
                listed = self.ask("POST", f"/v1/functions/{key}/invocations", {"event": 0}, "acme")
        except Lost:
            return
        if listed is None:
            return
        ended = time.monotonic_ns()
        value = limit(listed, key) if key in TENANTS else listed["result"]
        line = {"client": client, "key": key, "write": False, "value": value}
        self.lines.append({**line, "begun": begun, "ended": ended})
        self.answers += 1

    def client(self, number: int, keys: tuple[str, ...]) -> None:
        while not self.stops.is_set():
            key = random.choice(keys)
            if random.random() < 0.3:
                self.write(number, key)
            else:
                self.read(number, key)
            time.sleep(0.01)


def handler(value: int) -> str:
    return f"def handler(event):\n    return {value}\n"


def limit(listed: list[dict[str, Any]], tenant: str) -> int:
    [quotas] = [summary["quotas"] for summary in listed if summary["tenant"] == tenant]
    return int(next(quota["limit"] for quota in quotas if quota["kind"] == LIMIT))


def kill(cluster: Controls, leader: str) -> None:
    cluster.signal(leader, signal.SIGKILL)
    replaced(cluster, leader)
    cluster.up(leader)


def pause(cluster: Controls, leader: str) -> None:
    pid = cluster.status(leader)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        replaced(cluster, leader)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(f"{leader} to stand by", lambda: "stands by" in cluster.store(leader))


def cut(cluster: Controls, leader: str) -> None:
    for line in cluster.lines[leader]:
        line.cut()
    try:
        replaced(cluster, leader)
        time.sleep(1)
    finally:
        for line in cluster.lines[leader]:
            line.open()
    wait_for(f"{leader} to stand by", lambda: "stands by" in cluster.store(leader))


def hang_etcd(cluster: Controls, _: str) -> None:
    """The server of etcd that all ask first takes connections and says nothing."""
    assert cluster.etcd is not None
    cluster.etcd.signal(0, signal.SIGSTOP)
    try:
        time.sleep(6)
        wait_for("a leader", cluster.leader)
    finally:
        cluster.etcd.signal(0, signal.SIGCONT)


def kill_etcd(cluster: Controls, _: str) -> None:
    assert cluster.etcd is not None
    number = random.randrange(3)
    cluster.etcd.kill(number)
    time.sleep(1)
    cluster.etcd.start(number)
    wait_for("a leader", cluster.leader)


def test_controls_answer_as_one_under_faults(cluster: Controls, checker: Path) -> None:
    history = History(cluster)
    for key in (*TENANTS, *FUNCTIONS):
        # A control that stands by does nothing.
        wait_for(f"a value of {key}", lambda key=key: history.write(0, key))
    clients = [
        threading.Thread(target=history.client, args=(number, keys))
        for number, keys in enumerate([TENANTS, TENANTS, TENANTS, FUNCTIONS, FUNCTIONS], 1)
    ]
    for client in clients:
        client.start()
    for fault in (kill, pause, cut, hang_etcd, kill_etcd):
        before = history.answers
        fault(cluster, str(wait_for("a leader", cluster.leader)))
        wait_for("answers after the fault", lambda before=before: history.answers > before + 40)
    history.stops.set()
    for client in clients:
        client.join()
    assert not history.wrong, history.wrong[:5]
    text = "".join(json.dumps(line) + "\n" for line in history.lines)
    said = subprocess.run([checker], input=text, text=True, capture_output=True, check=True)
    lost = sum(line["ended"] == NEVER for line in history.lines)
    print(f"{len(history.lines)} operations, {lost} of them without an answer: {said.stdout}")
    assert said.stdout == "Ok\n", said.stdout


def test_the_checker_finds_an_old_answer(checker: Path) -> None:
    operations = [(True, 1, 1, 2), (True, 2, 3, 4), (False, 1, 5, 6)]
    lines = [
        {"client": 0, "key": "k", "write": w, "value": value, "begun": begun, "ended": ended}
        for w, value, begun, ended in operations
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    said = subprocess.run([checker], input=text, text=True, capture_output=True, check=True)
    assert said.stdout == "Illegal\n"
