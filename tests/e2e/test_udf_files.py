"""Files that travel with functions: models, data and modules, from registration to removal."""

import base64
import hashlib
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cluster
import duckdb
import pyarrow as pa
import pytest
from conftest import Snowmelt, wait_for
from suites import client_of

import snowmelt as sm
from snowmelt.engines import duckdb as in_duckdb
from snowmelt.engines import remote

SCORE = """
import os
import pickle
import snowmelt as sm
import weights

@sm.setup
def model():
    with open("model.pkl", "rb") as file:
        return pickle.load(file)

@sm.udf
def score(n: int) -> int:
    return n * model()["factor"] + weights.BIAS

@sm.udf
def word(n: int) -> str:
    with open(sm.file("words/list.txt")) as file:
        return file.read().split()[n]

@sm.udf
def place(n: int) -> str:
    return f"{os.getcwd()} {sm.file('model.pkl')} {os.access('model.pkl', os.W_OK)}"
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a function and what it reads."""
    import pickle

    (tmp_path / "score.py").write_text(SCORE)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps({"factor": 10}))
    (tmp_path / "weights.py").write_text("BIAS = 1\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "list.txt").write_text("zero one two")
    return tmp_path


def options(folder: Path) -> list[str]:
    given = [folder / "model.pkl", folder / "weights.py", f"{folder}/data:words"]
    return [text for path in given for text in ("--file", str(path))]


def blobs(platform: Snowmelt, tenant: str = "default") -> set[str]:
    """The contents that a platform keeps."""
    folder = platform.folder / "state" / "files" / "own" / tenant / "blobs"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def sha256(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def test_a_function_reads_its_files(alone: Snowmelt, files: Path) -> None:
    alone.run("up").succeeded()
    test = ("--test", "word(2)")
    added = alone.run("udf", "add", files / "score.py", *options(files), *test).succeeded()
    assert "word(2) = two" in added.err
    assert alone.rows("select score(4) s, word(1) w") == [{"s": 41, "w": "one"}]
    folder = "/run/snowmelt/files"
    expected = f"{folder} {folder}/model.pkl False"
    assert alone.rows("select place(0) p") == [{"p": expected}]
    shown = alone.run("udf", "show", "score").succeeded().out.splitlines()
    line = f"file         weights.py  9 B  sha256:{sha256('BIAS = 1' + chr(10))}"
    assert line in shown, shown
    assert sum(each.startswith("file ") for each in shown) == 3
    listed = json.loads(alone.run("udf", "show", "score", "-o", "json").succeeded().out)
    assert set(listed["files"]) == {"model.pkl", "weights.py", "words/list.txt"}
    assert listed["files"]["words/list.txt"] == {"digest": sha256("zero one two"), "size": 12}
    # After a restart, and from many workers.
    alone.run("down").succeeded()
    alone.run("up").succeeded()
    (files / "numbers.csv").write_text("n\n" + "\n".join(map(str, range(2000))))
    query = f"select sum(score(n)) s from '{files}/numbers.csv'"
    assert alone.rows(query, "--workers", "2") == [{"s": 10 * sum(range(2000)) + 2000}]
    # Another engine leases an instance of the same version.
    with client_of(alone.folder / "state" / "snowmelt.sock"):
        connection = duckdb.connect()
        in_duckdb.register(connection, "score")
        assert connection.sql("select score(5)").fetchall() == [(51,)]
        connection.close()
    alone.run("down").succeeded()


def test_a_version_keeps_its_files_and_its_removal_frees_them(alone: Snowmelt, files: Path) -> None:
    add = ("udf", "add", files / "score.py", *options(files))
    alone.run(*add).succeeded()
    first = blobs(alone)
    assert len(first) == 3
    # The same again needs nothing more; another content is one more.
    alone.run(*add).succeeded()
    assert blobs(alone) == first
    (files / "weights.py").write_text("BIAS = 2\n")
    alone.run(*add).succeeded()
    assert blobs(alone) == first | {sha256("BIAS = 2\n")}
    assert alone.rows("select score(4) s") == [{"s": 42}]
    # What another function has stays when one is removed.
    alone.run("udf", "rm", "score").succeeded()
    assert blobs(alone) == first | {sha256("BIAS = 2\n")}
    assert alone.rows("select word(0) w") == [{"w": "zero"}]
    alone.run("udf", "rm", "word").succeeded()
    alone.run("udf", "rm", "place").succeeded()
    assert blobs(alone) == set()


def test_old_versions_free_their_files(alone: Snowmelt, tmp_path: Path) -> None:
    code = tmp_path / "f.py"
    code.write_text(
        "import snowmelt as sm\n\n@sm.udf\ndef f(n: int) -> str:\n    return open('t').read()\n"
    )
    texts = [f"text {number}" for number in range(18)]
    for text in texts:
        (tmp_path / "t").write_text(text)
        alone.run("udf", "add", code, "--file", tmp_path / "t").succeeded()
    assert blobs(alone) == {sha256(text) for text in texts[2:]}
    assert alone.rows("select f(1) t") == [{"t": "text 17"}]


def test_an_instance_that_runs_keeps_its_files(alone: Snowmelt, files: Path) -> None:
    alone.run("up").succeeded()
    alone.run("udf", "add", files / "score.py", *options(files)).succeeded()
    with client_of(alone.folder / "state" / "snowmelt.sock"):
        called = remote("score", instances=1)
        numbers = pa.array([1, 2])
        assert called(numbers).to_pylist() == [11, 21]
        for name in ("score", "word", "place"):
            alone.run("udf", "rm", name).succeeded()
        assert called(numbers).to_pylist() == [11, 21]
        called.close()
    wait_for("the files to go", lambda: not blobs(alone), seconds=180)
    # The same files once more, on the same server.
    alone.run("udf", "add", files / "score.py", *options(files)).succeeded()
    assert alone.rows("select score(3) s") == [{"s": 31}]
    alone.run("down").succeeded()


def test_files_that_cannot_be_sent_register_nothing(alone: Snowmelt, files: Path) -> None:
    alone.run("up").succeeded()
    code, model = files / "score.py", files / "model.pkl"

    def refused(*given: object) -> dict[str, Any]:
        arguments = [text for one in given for text in ("--file", str(one))]
        return alone.run("udf", "add", code, *arguments).failed_with("SM-0230")

    assert "missing.pkl" in refused(files / "missing.pkl")["message"]
    for name in ("../model.pkl", "/model.pkl", "a/../../b", ""):
        assert "cannot be named" in refused(f"{model}:{name}")["message"]
    assert "both have the name" in refused(model, f"{files}/weights.py:model.pkl")["message"]
    (files / "data" / "link").symlink_to("/etc/passwd")
    assert "symbolic link" in refused(files / "data")["message"]
    with (files / "large").open("wb") as large:
        large.truncate((4 << 30) + 1)
    assert "larger than 4" in refused(files / "large")["message"]
    # The code fails where one of its files is not there.
    only_model = alone.run("udf", "add", code, "--file", model)
    only_model.failed_with("SM-0204", "weights")
    assert alone.run("udf", "ls").succeeded().out == ""
    alone.run("down").succeeded()


class Api:
    """Requests to a server, as any client may send them."""

    def __init__(self, platform: Snowmelt, tenant: str = "default") -> None:
        self._socket, self._tenant = platform.folder / "state" / "snowmelt.sock", tenant

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("x")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self._socket))
        payload = body if isinstance(body, bytes) else json.dumps(body)
        # A request may be refused, and its connection closed, before its body is sent.
        with suppress(BrokenPipeError):
            headers = {"snowmelt-tenant": self._tenant}
            connection.request(method, path, body=payload, headers=headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, json.loads(text) if text else None

    def refused(self, method: str, path: str, body: Any) -> str:
        status, problem = self.ask(method, path, body)
        assert (status >= 400, problem["code"]) == (True, "SM-0230"), problem
        return str(problem["message"])

    def register(self, files: dict[str, Any]) -> str:
        text = "import snowmelt as sm\n\n@sm.udf\ndef f(n: int) -> int:\n    return n\n"
        code = {"kind": "source", "file": "f.py", "text": text}
        return self.refused("POST", "/v1/udfs", {"source": {"code": code, "files": files}})


def test_what_the_server_is_sent_is_checked(alone: Snowmelt) -> None:
    alone.run("up").succeeded()
    api, stranger = Api(alone), Api(alone, "acme")
    digest, other = sha256("text"), sha256("another")
    asked = {"digests": [digest, other, digest]}
    assert api.ask("POST", "/v1/files", asked) == (200, {"missing": sorted([digest, other])})
    assert api.ask("POST", f"/v1/files/{digest}", b"text") == (204, None)
    assert api.ask("POST", "/v1/files", asked) == (200, {"missing": [other]})
    # A file that changes between its digest and its content.
    assert "changed while it was sent" in api.refused("POST", f"/v1/files/{other}", b"anothes")
    assert "SHA-256" in api.refused("POST", "/v1/files/..%2f..%2fx", b"text")
    assert blobs(alone) == {digest}
    good = {"digest": digest, "size": 4}
    for name in ("../x", "/x", "a/../x", "a//x", ""):
        assert f"the name `{name}`" in api.register({name: good})
    assert "was not sent" in api.register({"x": {"digest": other, "size": 7}})
    assert "has 4 bytes" in api.register({"x": {"digest": digest, "size": 5}})
    assert "not a SHA-256" in api.register({"x": {"digest": "../x", "size": 4}})
    assert "1000 are the most" in api.register({str(n): good for n in range(1001)})
    assert "4 GiB are the most" in api.register({"x": {"digest": digest, "size": 5 << 30}})
    # Who knows the digest of another tenant's file does not get the file.
    assert stranger.ask("POST", "/v1/files", {"digests": [digest]})[1] == {"missing": [digest]}
    assert "was not sent" in stranger.register({"x": good})
    assert api.ask("GET", "/v1/udfs", None) == (200, [])
    alone.run("down").succeeded()


def test_functions_in_python_have_files(alone: Snowmelt, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("zero one two")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "factor").write_text("3")
    alone.run("up").succeeded()

    @sm.udf(files={"words.txt": tmp_path / "words.txt"})
    def word(n: int) -> str:
        with open("words.txt") as file:
            return file.read().split()[n]

    @sm.aggregate(files=[tmp_path / "more"])
    class Scaled:
        def __init__(self) -> None:
            self.total = 0

        def update(self, n: int) -> None:
            with open(sm.file("more/factor")) as file:
                self.total += n * int(file.read())

        def merge(self, other: "Scaled") -> None:
            self.total += other.total

        def finish(self) -> int:
            return self.total

    # As a plain function it reads the same file, by the name that it has.
    assert Path(sm.file("words.txt")) == tmp_path / "words.txt"
    with client_of(alone.folder / "state" / "snowmelt.sock"):
        query = sm.sql("select word(1) w", udfs=[word], progress=False)
        assert query.collect().to_pylist() == [{"w": "one"}]
        sql = "select Scaled(range) s from range(0, 5)"
        query = sm.sql(sql, udfs=[Scaled], progress=False)
        assert query.collect().to_pylist() == [{"s": 30}]
        assert remote(word)(pa.array([2, 0])).to_pylist() == ["two", "zero"]
        assert word.register() == 1
        scaled: Any = Scaled
        assert scaled.register() == 1
        (tmp_path / "other.txt").write_text("null eins")
        assert word.register(files={"words.txt": tmp_path / "other.txt"}) == 2
        # The registered ones, and not those of this scope.
        query = sm.sql("select word(1) w, Scaled(2) s", udfs=[], progress=False)
        assert query.collect().to_pylist() == [{"w": "eins", "s": 6}]
        with pytest.raises(sm.FunctionError, match="cannot be read") as refused:
            word.register(files=[tmp_path / "missing"])
        assert refused.value.code == "SM-0230"
    alone.run("down").succeeded()


def test_a_query_brings_functions_with_files(alone: Snowmelt, files: Path) -> None:
    alone.run("up").succeeded()
    given = [text.replace("--file", "--udf-file") for text in options(files)]
    udf = ("--udf", files / "score.py", *given)
    assert alone.rows("select score(4) s, word(1) w", *udf) == [{"s": 41, "w": "one"}]
    (files / "keyed.py").write_text(
        "import snowmelt as sm\n\n@sm.udf\ndef keyed(n: int) -> str:\n"
        "    return sm.secret('KEY')[:n]\n"
    )
    keyed = ("--udf", files / "keyed.py", "--udf-secret")
    missing = alone.sql("select keyed(2)", *keyed, "KEY=env:SNOWMELT_TEST_MISSING")
    missing.failed_with("SM-0231")
    alone.sql("select keyed(2)", *keyed, "KEY").failed_with("SM-0231", "--udf-secret")
    alone.run("down").succeeded()


DEFINED = """
create function scored(n bigint) returns bigint language python as $$
  import pickle
  with open("model.pkl", "rb") as file:
      return n * pickle.load(file)["factor"]
$$
"""


def test_a_function_that_sql_defines_has_files(alone: Snowmelt, files: Path) -> None:
    alone.run("up").succeeded()
    model = ("--udf-file", files / "model.pkl")
    assert alone.rows(DEFINED, *model)[0]["function"] == "scored"
    assert alone.rows("select scored(4) s") == [{"s": 40}]
    assert blobs(alone) == {sha256((files / "model.pkl").read_bytes())}
    # Nothing would read them.
    for statement in ("select 1", "drop function if exists scored"):
        alone.sql(statement, *model).failed_with("SM-0230", "defines no function")
    assert alone.rows("select scored(4) s") == [{"s": 40}]
    alone.rows("drop function scored")
    assert blobs(alone) == set()
    with client_of(alone.folder / "state" / "snowmelt.sock"):
        sm.sql(DEFINED, function_files=[files / "model.pkl"])
        assert sm.sql("select scored(5)").rows() == [(50,)]
        with pytest.raises(sm.Error, match="CREATE FUNCTION"):
            sm.sql("select 1", function_files=[files / "model.pkl"])
        with pytest.raises(sm.Error, match="cannot be read"):
            sm.sql(DEFINED.replace("scored", "other"), function_files=[files / "missing"])
    alone.run("down").succeeded()


def test_a_declared_file_must_come_with_the_code(alone: Snowmelt, tmp_path: Path) -> None:
    code = tmp_path / "f.py"
    code.write_text(
        'import snowmelt as sm\n\n@sm.udf(files=["model.pkl"])\ndef f(n: int) -> int:\n'
        "    return len(open('model.pkl').read()) * n\n"
    )
    missing = alone.run("udf", "add", code).failed_with("SM-0204", "it declares the file model.pkl")
    assert "--file" in missing["hint"]
    (tmp_path / "model.pkl").write_text("12345")
    alone.run("udf", "add", code, "--file", tmp_path / "model.pkl").succeeded()
    assert alone.rows("select f(2) n") == [{"n": 10}]
    # A name that was not given is an error of the function, which names those that were.
    code.write_text(
        "import snowmelt as sm\n\n@sm.udf\ndef f(n: int) -> str:\n    return sm.file('other')\n"
    )
    alone.run("udf", "add", code, "--file", tmp_path / "model.pkl").succeeded()
    alone.sql("select f(2)").failed_with("SM-0201", "it has model.pkl")


@pytest.fixture
def two_hosts(alone: Snowmelt, tmp_path: Path) -> Iterator[Snowmelt]:
    """A cluster of two hosts that share no folder."""
    with cluster.two_hosts(alone, tmp_path, 7480, alone.environ()):
        yield alone


def test_files_reach_the_other_hosts(two_hosts: Snowmelt, files: Path) -> None:
    (files / "large.bin").write_bytes(base64.b64encode(bytes(range(256)) * 8192))
    two_hosts.run(
        "udf", "add", files / "score.py", *options(files), "--file", files / "large.bin"
    ).succeeded()
    numbers = [files / f"{part}.csv" for part in range(8)]
    for path in numbers:
        path.write_text("n\n" + "\n".join(map(str, range(500))))
    sql = f"select sum(score(n)) s from '{files}/*.csv'"
    expected = 8 * (10 * sum(range(500)) + 500)

    def hosts() -> set[str]:
        query = sm.sql(sql, workers=8, progress=False)
        assert query.collect().to_pylist() == [{"s": expected}]
        lanes = [lane for lane in (query.profile or {})["lanes"] if "score" in lane["name"]]
        return {lane["host"] for lane in lanes}

    wait_for("the function on both hosts", lambda: hosts() == {"one", "two"}, seconds=120)
    received = two_hosts.folder / "second" / "files" / "received" / "default" / "blobs"
    assert {path.name for path in received.iterdir()} == blobs(two_hosts)
