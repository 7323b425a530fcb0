"""Secrets of functions: references in the registry, values in instances and nowhere else."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import cluster
import pyarrow as pa
import pytest
from conftest import Snowmelt, wait_for
from suites import client_of

import snowmelt as sm
from snowmelt.engines import remote

VALUE = "hunter2-of-the-default-tenant"
OTHER = "swordfish-of-acme"

KEYED = """
import os
import subprocess
import snowmelt as sm

at_import = sm.secret("API_KEY")

@sm.udf
def keyed(n: int) -> str:
    return sm.secret("API_KEY")[: n]

@sm.udf
def same(n: int) -> bool:
    return at_import == sm.secret("API_KEY")

@sm.udf
def around(n: int) -> str:
    child = subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout
    shown = str(dict(os.environ)) + child
    return "seen" if sm.secret("API_KEY") in shown else "hidden"

@sm.udf
def prints(n: int) -> int:
    print("the key is", sm.secret("API_KEY"))
    os.write(1, f"raw: {sm.secret('API_KEY')}\\n".encode())
    return n

@sm.udf
def raises(n: int) -> int:
    try:
        raise ValueError("cause: " + sm.secret("API_KEY"))
    except ValueError as error:
        raise RuntimeError("401 for https://x/?key=" + sm.secret("API_KEY")) from error

@sm.udf
def ends(n: int) -> int:
    print("last words:", sm.secret("API_KEY"), flush=True)
    os._exit(3)

@sm.udf
def unknown(n: int) -> str:
    return sm.secret("OTHER_KEY")
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "keyed.py"
    path.write_text(KEYED)
    return path


@pytest.fixture
def platform(alone: Snowmelt) -> Snowmelt:
    """With a folder of secrets, and a secret in its environment."""
    for tenant, value in (("default", VALUE), ("acme", OTHER)):
        folder = alone.folder / "secrets" / tenant
        folder.mkdir(parents=True)
        (folder / "KEY").write_text(value + "\n")
    alone.environment = {"SNOWMELT_SECRETS": str(alone.folder / "secrets"), "THE_KEY": VALUE}
    return alone


def as_tenant(platform: Snowmelt, tenant: str) -> Snowmelt:
    return Snowmelt(platform.folder, platform.environment | {"SNOWMELT_TENANT": tenant})


def files_with(folder: Path, text: str) -> list[str]:
    """Files below a folder that have a text."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [str(path) for path in found if text.encode() in path.read_bytes()]


def test_a_value_is_in_the_instance_and_nowhere_else(platform: Snowmelt, code: Path) -> None:
    platform.run("up").succeeded()
    reference = ("--secret", "API_KEY=env:THE_KEY")
    added = platform.run("udf", "add", code, *reference, "--test", "same(1)").succeeded()
    assert "same(1) = true" in added.err
    row = "select keyed(7) k, same(1) s, around(1) a"
    assert platform.rows(row) == [{"k": VALUE[:7], "s": True, "a": "hidden"}]
    shown = platform.run("udf", "show", "keyed").succeeded().out
    assert "secret       API_KEY  env:THE_KEY" in shown
    listed = platform.run("udf", "show", "keyed", "-o", "json").succeeded().out
    assert json.loads(listed)["secrets"] == {"API_KEY": "env:THE_KEY"}
    assert platform.rows("select prints(1) p") == [{"p": 1}]
    log = platform.run("udf", "log", "prints").succeeded().out
    assert "the key is ***" in log and "raw: ***" in log
    # Errors, a crash and a profile.
    said = [shown, listed, log]
    for function, error, words in (
        ("raises", "SM-0201", "401 for https://x/?key=***"),
        ("ends", "SM-0210", "exited with code 3"),
        ("unknown", "SM-0201", "the function has no secret OTHER_KEY"),
    ):
        failed = platform.sql(f"select {function}(1)")
        failed.failed_with(error, words)
        said += [failed.out, failed.err]
    profiled = platform.sql("select prints(2)", "--profile").succeeded()
    said += [profiled.out, profiled.err]
    assert not any(VALUE in text for text in said)
    assert files_with(platform.folder / "state", VALUE) == []
    # After a restart the reference leads to the value again.
    platform.run("down").succeeded()
    assert files_with(platform.folder / "state", VALUE) == []
    platform.environment = platform.environment | {"THE_KEY": "another-value"}
    platform.run("up").succeeded()
    assert platform.rows("select keyed(99) k") == [{"k": "another-value"}]
    platform.run("down").succeeded()


def test_a_secret_in_a_file_can_be_replaced(platform: Snowmelt, code: Path) -> None:
    platform.run("up").succeeded()
    platform.run("udf", "add", code, "--secret", "API_KEY=file:KEY").succeeded()
    assert platform.rows("select keyed(99) k") == [{"k": VALUE}]
    key = platform.folder / "secrets" / "default" / "KEY"
    key.write_text("a-newer-value")
    # No instance with the old value answers from now on.
    assert platform.rows("select keyed(99) k") == [{"k": "a-newer-value"}]
    key.unlink()
    missing = platform.sql("select keyed(99) k").failed_with("SM-0231", "there is no such file")
    assert "API_KEY" in missing["message"]
    with client_of(platform.folder / "state" / "snowmelt.sock"):
        with pytest.raises(sm.FunctionError) as refused:
            remote("keyed")(pa.array([1]))
        assert refused.value.code == "SM-0231"
        key.write_text(VALUE)
        assert remote("keyed")(pa.array([4])).to_pylist() == [VALUE[:4]]
    platform.run("down").succeeded()


def test_a_missing_secret_registers_nothing(platform: Snowmelt, code: Path) -> None:
    platform.run("up").succeeded()

    def refused(*secrets: str) -> str:
        arguments = [text for secret in secrets for text in ("--secret", secret)]
        failed = platform.run("udf", "add", code, *arguments)
        failed.failed_with("SM-0231")
        return failed.err

    assert "no variable NO_SUCH_KEY" in refused("API_KEY=env:NO_SUCH_KEY")
    assert "there is no such file" in refused("API_KEY=file:MISSING")
    assert "is not a file in" in refused("API_KEY=file:../acme/KEY")
    assert "is not a file in" in refused("API_KEY=file:/etc/shadow")
    assert "given twice" in refused("API_KEY=file:KEY", "API_KEY=env:THE_KEY")
    assert "name of a secret" in refused("api-key=file:KEY")
    # A value instead of a reference is not repeated anywhere.
    for text in (f"API_KEY={VALUE}", VALUE, f"API_KEY=env:{VALUE}"):
        assert VALUE not in refused(text)
    # Without the secret, the code that needs it when it is loaded fails.
    platform.run("udf", "add", code).failed_with("SM-0204", "the function has no secret API_KEY")
    assert platform.run("udf", "ls").succeeded().out == ""
    assert files_with(platform.folder / "state", VALUE) == []
    platform.run("down").succeeded()


def test_a_tenant_reads_its_own_secrets_only(platform: Snowmelt, code: Path) -> None:
    platform.run("up").succeeded()
    acme = as_tenant(platform, "acme")
    acme.run("udf", "add", code, "--secret", "API_KEY=file:KEY").succeeded()
    platform.run("udf", "add", code, "--secret", "API_KEY=file:KEY").succeeded()
    assert acme.rows("select keyed(99) k") == [{"k": OTHER}]
    assert platform.rows("select keyed(99) k") == [{"k": VALUE}]
    secrets = platform.folder / "secrets"
    (secrets / "acme" / "OUT").symlink_to(secrets / "default" / "KEY")
    for reference in (
        f"file:{secrets}/default/KEY",
        "file:../default/KEY",
        "file:OUT",
        "env:THE_KEY",
        "env:PATH",
    ):
        failed = acme.run("udf", "add", code, "--secret", f"API_KEY={reference}")
        failed.failed_with("SM-0231")
        assert VALUE not in failed.err
    # The tenant's own link, as orchestrators make them, is followed.
    (secrets / "acme" / "LINK").symlink_to("KEY")
    acme.run("udf", "add", code, "--secret", "API_KEY=file:LINK").succeeded()
    assert acme.rows("select keyed(99) k") == [{"k": OTHER}]
    platform.run("down").succeeded()


def test_functions_of_sql_and_python_have_secrets(platform: Snowmelt) -> None:
    platform.run("up").succeeded()
    create = """create function keyed_by_sql(n bigint) returns text language python
        secrets = ('API_KEY=file:KEY') as $$
          import snowmelt as sm
          return sm.secret("API_KEY")[:n]
        $$"""
    platform.rows(create)
    assert platform.rows("select keyed_by_sql(7) k") == [{"k": VALUE[:7]}]
    failed = platform.sql(create.replace("file:KEY", VALUE).replace("create", "create or replace"))
    failed.failed_with("SM-0231")
    assert VALUE not in json.dumps(failed.report["message"])

    @sm.udf(secrets={"API_KEY": "file:KEY"})
    def keyed(n: int) -> str:
        return sm.secret("API_KEY")[:n]

    with client_of(platform.folder / "state" / "snowmelt.sock"):
        query = sm.sql("select keyed(7) k", udfs=[keyed], progress=False)
        assert query.collect().to_pylist() == [{"k": VALUE[:7]}]
        assert remote(keyed)(pa.array([3])).to_pylist() == [VALUE[:3]]
        assert keyed.register(secrets={"API_KEY": "env:THE_KEY"}) == 1
        assert remote("keyed")(pa.array([3])).to_pylist() == [VALUE[:3]]
        with pytest.raises(TypeError) as wrong:
            keyed.register(secrets={"API_KEY": VALUE})
        assert VALUE not in str(wrong.value)
    platform.run("down").succeeded()


def test_queries_do_not_read_secrets(platform: Snowmelt, tmp_path: Path) -> None:
    """The server opens files with its own rights, and secrets are no tables."""
    secrets = platform.folder / "secrets"
    table = secrets / "default" / "table.csv"
    table.write_text(f"a\n{VALUE}\n")
    (tmp_path / "link.csv").symlink_to(table)
    platform.run("up").succeeded()
    acme = as_tenant(platform, "acme")
    for location in (table, f"{secrets}/*/*.csv", secrets / "default", tmp_path / "link.csv"):
        for asking in (acme, platform):
            failed = asking.sql(f"select * from '{location}'")
            failed.failed_with("SM-0231", "which queries do not read")
            assert VALUE not in failed.out + failed.err
    (tmp_path / "other.csv").write_text("a\n1\n")
    assert acme.rows(f"select * from '{tmp_path}/other.csv'") == [{"a": 1}]
    platform.run("down").succeeded()


@pytest.fixture
def two_hosts(platform: Snowmelt, tmp_path: Path) -> Iterator[Snowmelt]:
    """A cluster of two hosts; the second one has no secrets of its own."""
    environment = platform.environ() | {"SNOWMELT_SECRETS": "/nowhere"}
    del environment["THE_KEY"]
    with cluster.two_hosts(platform, tmp_path, 7490, environment):
        yield platform


def test_secrets_reach_the_other_hosts(two_hosts: Snowmelt, code: Path, tmp_path: Path) -> None:
    two_hosts.run("udf", "add", code, "--secret", "API_KEY=file:KEY").succeeded()
    for part in range(8):
        (tmp_path / f"{part}.csv").write_text("n\n" + "\n".join(["99"] * 500))
    sql = f"select keyed(n) k, count(*) c from '{tmp_path}/*.csv' group by 1"

    def hosts() -> set[str]:
        query = sm.sql(sql, workers=8, progress=False)
        assert query.collect().to_pylist() == [{"k": VALUE, "c": 4000}]
        lanes = [lane for lane in (query.profile or {})["lanes"] if "keyed" in lane["name"]]
        return {lane["host"] for lane in lanes}

    wait_for("the function on both hosts", lambda: hosts() == {"one", "two"}, seconds=120)
    for folder in ("state", "second"):
        assert files_with(two_hosts.folder / folder, VALUE) == []


def test_instances_of_a_burst_have_the_secrets_of_their_function(platform: Snowmelt) -> None:
    platform.run("up").succeeded()
    program = """
        import snowmelt as sm

        @sm.function(secrets={"API_KEY": "env:THE_KEY"})
        def ends(rank):
            print("it is", sm.secret("API_KEY"))
            return [rank, sm.secret("API_KEY")[-7:]]

        for network in (None, "job"):
            done = ends.burst(2, network=network, memory="64MiB", progress=False)
            print(list(done), *done.logs)
        other = sm.burst(lambda rank: sm.secret("OTHER")[:4], 1, secrets={"OTHER": "file:KEY"},
                         memory="64MiB", progress=False)
        print(list(other))
        try:
            sm.burst(lambda rank: rank, 1, secrets={"OTHER": "file:NONE"}, progress=False)
        except sm.Error as error:
            print(error.code)
    """
    try:
        out = platform.python(textwrap.dedent(program)).succeeded().out
    finally:
        platform.run("down")
    assert out.count(f"[[0, '{VALUE[-7:]}'], [1, '{VALUE[-7:]}']]") == 2
    assert out.count("it is ***") == 4 and VALUE not in out
    assert f"['{VALUE[:4]}']" in out and out.strip().endswith("SM-0231")
    assert files_with(platform.folder / "state", VALUE) == []
