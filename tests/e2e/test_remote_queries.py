"""Queries of clients on other hosts: by the command line, over TLS, with a key of a tenant."""

import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from test_remote_leases import Platform, platform

import snowmelt as sm
from common.paths import SNOWMELT

__all__ = ["platform"]


@sm.udf
def grade_of(n: int) -> int:
    return 2 * n


FUNCTION = """import snowmelt as sm

@sm.udf
def doubled(n: int) -> int:
    return 2 * n
"""


class Client:
    """The command line on another host: without the platform's socket and state."""

    def __init__(self, platform: Platform, folder: Path, token: str | None = None) -> None:
        self.platform, self.folder = platform, folder
        self.token = platform.token if token is None else token

    def run(self, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        host, port = self.platform.address
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "SNOWMELT_URL": f"https://{host}:{port}",
            "SNOWMELT_CA": str(self.platform.authority),
            "SNOWMELT_TOKEN": self.token,
        }
        return subprocess.run(
            [SNOWMELT, *arguments],
            env=environment | more,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )

    def rows(self, sql: str, *arguments: str | Path) -> str:
        done = self.run("sql", "-o", "csv", *arguments, sql)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, sql: str, code: str, *arguments: str | Path, **more: str) -> str:
        done = self.run("sql", *arguments, sql, **more)
        assert done.returncode != 0 and code in done.stderr, done
        return done.stderr


@pytest.fixture
def client(platform: Platform, tmp_path: Path) -> Client:
    folder = tmp_path / "client"
    folder.mkdir()
    return Client(platform, folder)


def test_a_query_runs_on_the_platform_with_the_clients_function(client: Client) -> None:
    assert client.rows("select 1 + 1 as n") == "n\n2\n"
    code = client.folder / "f.py"
    code.write_text(FUNCTION)
    sql = "select sum(doubled(v)) as s from range(1000) r(v)"
    assert client.rows(sql, "--udf", code) == "s\n999000\n"
    # Registered for all queries of the tenant.
    created = "create function tripled(n int) returns int language python as $$ return 3 * n $$"
    assert "tripled" in client.rows(created)
    assert client.rows("select tripled(5) as n") == "n\n15\n"
    assert "tripled" in client.run("udf", "ls").stdout


def test_deployed_functions_are_used_from_far(client: Client) -> None:
    code = client.folder / "f.py"
    code.write_text("def handler(event):\n    return event['n'] + 1\n")
    done = client.run("fn", "deploy", "next", code)
    assert done.returncode == 0, done.stderr
    called = client.run("fn", "call", "next", "--data", '{"n": 41}')
    assert called.returncode == 0 and "42" in called.stdout, called
    assert json.loads(client.run("fn", "ls", "-o", "json").stdout)[0]["tenant"] == "acme"
    # Of another tenant there is nothing.
    assert client.platform.snowmelt.run("fn", "ls", "-o", "json").succeeded().out.strip() == "[]"


def test_no_file_of_the_machine_is_read(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "open.csv"
    file.write_text("x\n1\n")
    file.chmod(0o644)
    for location in (str(file), str(tmp_path), f"{tmp_path}/*.csv", "/etc/passwd", "open.csv"):
        said = client.refused(f"select count(*) from '{location}'", "SM-0121")
        assert "s3://" in said
    client.refused("select count(*) from t", "SM-0121", "--table", f"t={file}")
    client.refused(f"select count(*) from read_csv('{file}')", "SM-0121")


def test_the_machines_network_is_not_the_clients(client: Client) -> None:
    sql = "select count(*) from 's3://bucket/x.parquet'"
    for endpoint in ("http://169.254.169.254", "http://127.0.0.1:9000", "https://10.0.0.1"):
        said = client.refused(sql, "SM-0120", AWS_ENDPOINT_URL=endpoint, AWS_ALLOW_HTTP="true")
        assert endpoint in said
    client.refused("select count(*) from 'https://127.0.0.1/x.csv'", "SM-0120")


def test_keys_without_the_right_run_no_query(client: Client) -> None:
    platform = client.platform
    for more, role in (((), "caller"), ((), "reader"), (("--grant", "score-*"), "developer")):
        made = platform.snowmelt.run("token", "new", "acme", "--role", role, *more)
        limited = Client(platform, client.folder, made.succeeded().out.strip())
        limited.refused("select 1", "SM-0518")


def test_wrong_settings_are_explained(client: Client) -> None:
    for more, code, words in (
        ({"SNOWMELT_URL": "http://127.0.0.1:1"}, "SM-0110", "https://HOST:PORT"),
        ({"SNOWMELT_TOKEN": ""}, "SM-0110", "there is no token"),
        ({"SNOWMELT_TOKEN": "snowmelt-0123456789abcdef"}, "SM-0515", "not accepted"),
        ({"SNOWMELT_CA": "/nonexistent"}, "SM-0110", "/nonexistent"),
        ({"SNOWMELT_CA": "/etc/hostname"}, "SM-0110", "certificate"),
        ({"SNOWMELT_CA": ""}, "SM-0516", "SNOWMELT_CA"),
        ({"SNOWMELT_URL": "https://127.0.0.1:1"}, "SM-0503", "cannot be reached"),
    ):
        said = client.refused("select 1", code, **more)
        assert words in said, said
    # A command for the machine itself does not go anywhere.
    assert "no server is running" in client.run("down").stderr


def test_python_queries_from_far_as_near(platform: Platform) -> None:
    platform.connect()
    asked = sm.sql("select sum(grade_of(v)) as s from range(1000) r(v)", udfs=[grade_of])
    assert asked.rows() == [(999_000,)] and asked.profile is not None
    assert sm.sql("select ? + 1 as n", params=[41]).rows() == [(42,)]
    # Tables of this process are files of its machine.
    for query, tables in (
        ("select count(*) from '/etc/hosts'", {}),
        ("select count(*) from t", {"t": pa.table({"n": [1]})}),
    ):
        with pytest.raises(sm.Error) as refused:
            sm.sql(query, **tables).collect()
        assert refused.value.code == "SM-0121" and "s3://" in str(refused.value)
