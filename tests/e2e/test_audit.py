"""The audit: who did what, in a chain that shows changes, in files and at a collector."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Snowmelt, wait_for
from test_keys import DEPLOY, ask, identifier, new
from test_remote_leases import served


class Collector(HTTPServer):
    """A collector that is away at first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.is_away = True
        self.lines: list[dict[str, Any]] = []
        self.kinds: set[str | None] = set()


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self.server.is_away:
            self.server.kinds.add(self.headers["content-type"])
            self.server.lines += [json.loads(line) for line in body.splitlines()]
        self.send_response(503 if self.server.is_away else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def test_each_action_has_a_line_in_the_files_and_at_the_collector(
    alone: Snowmelt, tmp_path: Path, collector: Collector
) -> None:
    url = f"http://127.0.0.1:{collector.server_port}/audit"
    alone.environment = {"SNOWMELT_AUDIT_COLLECTOR": url}
    folder = alone.folder / "state/audit"
    file = folder / "audit.jsonl"

    def lines(event: str = "action") -> list[dict[str, Any]]:
        known = [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in known if line["event"] == event]

    def found(**wanted: object) -> list[dict[str, Any]]:
        return [line for line in lines() if wanted.items() <= line.items()]

    with served(alone, tmp_path) as platform:
        developer, caller = new(platform, "acme"), new(platform, "other", "--role", "caller")
        assert ask(platform, developer, "POST", "/v1/functions", DEPLOY)[0] == 201
        value = "a value of its owner"
        call = ("POST", "/v1/functions/f/invocations", {"event": value})
        assert ask(platform, developer, *call)[0] == 200
        assert ask(platform, caller, *call)[0] == 404
        assert ask(platform, caller, "POST", "/v1/functions", DEPLOY)[0] == 403
        assert ask(platform, developer, "GET", "/v1/functions")[0] == 200
        for _ in range(30):
            assert ask(platform, "snowmelt-a-wrong-key", "GET", "/v1/functions")[0] == 401
        alone.run("sql", f"select '{value}' as v", "--tenant", "acme").succeeded()
        wait_for("the query", lambda: bool(found(action="POST /v1/queries")))

        [deployed] = found(action="POST /v1/functions", object="f")
        of_acme = {
            "tenant": "acme",
            "role": "developer",
            "principal": f"key {identifier(developer)}",
        }
        assert of_acme.items() <= deployed.items(), deployed
        assert (deployed["status"], deployed["address"]) == (201, "127.0.0.1")
        assert len(deployed["request"]) == 32
        [forbidden] = found(action="POST /v1/functions", tenant="other")
        assert (forbidden["status"], forbidden["code"]) == (403, "SM-0518")
        calls = found(action="POST /v1/functions/{name}/invocations")
        assert [(call["tenant"], call["status"]) for call in calls] == [
            ("acme", 200),
            ("other", 404),
        ]
        [query] = found(action="POST /v1/queries")
        assert (query["principal"], query["code"]) == ("user 0", "")
        assert query["object"].startswith("q-") and len(query["detail"]["sql_blake3"]) == 64
        assert not found(action="GET /v1/functions")
        assert len(lines("login")) == 5
        text = file.read_text()
        assert all(part not in text for part in (value, developer, caller, "a-wrong-key"))

        collector.is_away = False
        platform.restart()
        assert ask(platform, developer, *call)[0] == 200
        written = len(file.read_text().splitlines())
        wait_for("all lines", lambda: len({x["seq"] for x in collector.lines}) >= written)
    assert [line["count"] for line in lines("logins")] == [25]
    assert collector.kinds == {"application/x-ndjson"}
    assert (len(lines("start")), len(lines("end"))) == (2, 2)

    checked = json.loads(alone.run("audit", "verify", "-o", "json").succeeded().out)
    whole = file.read_text().splitlines(keepends=True)
    assert (checked["lines"], checked["first"], checked["last"]) == (len(whole), 1, len(whole))
    # What was changed, removed or put in shows, at the first place.
    for name, changed in (
        ("changed", [*whole[:3], whole[3].replace('"acme"', '"other"'), *whole[4:]]),
        ("removed", [*whole[:4], *whole[5:]]),
        ("put in", [*whole[:5], whole[4], *whole[5:]]),
    ):
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        (copy / file.name).write_text("".join(changed))
        if changed != whole:
            alone.run("audit", "verify", copy).failed_with("SM-0532", "audit.jsonl, line")
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_refuses_actions_if_the_audit_is_required(
    small_disk: Path, alone: Snowmelt, tmp_path: Path
) -> None:
    audit = small_disk / "audit"
    alone.environment = {"SNOWMELT_AUDIT_FOLDER": str(audit), "SNOWMELT_AUDIT_REQUIRED": "true"}

    def fill() -> None:
        with pytest.raises(OSError), (small_disk / "other").open("wb", buffering=0) as other:
            while True:
                assert other.write(bytes(4096))

    with served(alone, tmp_path) as platform:

        def remove() -> tuple[int, Any]:
            return ask(platform, platform.token, "DELETE", "/v1/functions/nothing")

        def is_refused() -> bool:
            status, answer = remove()
            return status == 503 and answer["code"] == "SM-0531"

        assert remove()[0] == 404
        fill()
        wait_for("refusals", is_refused)
        # What only looks is served.
        assert ask(platform, platform.token, "GET", "/v1/functions")[0] == 200
        (small_disk / "other").unlink()
        wait_for("the audit", lambda: remove()[0] == 404)
        alone.run("audit", "verify", audit).succeeded()
        fill()
        wait_for("refusals", is_refused)
    # The server has ended although its last lines cannot be written.
    checked = json.loads(alone.run("audit", "verify", audit, "-o", "json").succeeded().out)
    assert checked["lines"] > 3
