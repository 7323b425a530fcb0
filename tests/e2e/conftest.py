"""Fixtures with the real binary: data, separate folders, and a check of complete clean-up."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from analytics import tpch_tables
from images import Registry, registry
from reference import Reference

from common.machine_state import MachineState
from common.paths import SNOWMELT, tpch

PYTHON = Path(__file__).resolve().parents[2] / "python"

# The tables of tests are small, and are spread over all workers nevertheless.
os.environ["SNOWMELT_SCAN_TASK"] = "0"

# By `scripts/e2e`, if the servers of all tests become another user: who that is, and the tools that
# this user can run.
SERVER_USER = (
    {name: os.environ[name] for name in ("SNOWMELT_USER", "SNOWMELT_UV", "SNOWMELT_PYTHON")}
    if "SNOWMELT_E2E_USER" in os.environ
    else {}
)

# The aim is 2 s. A loaded machine took 6.5 s; the tests show that nothing remains, not how fast.
CLEAN_WITHIN_S = 30.0


@dataclass
class Result:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The error object: the last line of stderr under `--errors json`."""
        try:
            return dict(json.loads(self.err.strip().splitlines()[-1]))
        except (IndexError, ValueError):
            pytest.fail(f"no error object; exit code {self.code}, stderr:\n{self.err}")

    def failed_with(self, code: str, *parts: str) -> dict[str, Any]:
        """Asserts an error's code, and that its text contains the given words."""
        assert self.code != 0, self.out
        report = self.report
        text = json.dumps(report, ensure_ascii=False)
        assert report["code"] == code, text
        for part in parts:
            assert part in text, f"{part!r} is not in {text}"
        return report

    def succeeded(self) -> "Result":
        assert self.code == 0, f"exit code {self.code}, stderr:\n{self.err}"
        return self


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder that must be removable after the block. A socket's path has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="sm-", dir="/tmp"))
    if SERVER_USER:
        folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, onerror=_unless_gone)


def _unless_gone(_: object, path: str, error: Any) -> None:
    """A platform that ends may still be removing files that it has kept too many of."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


@dataclass
class Snowmelt:
    """The command line with its own state and run folder."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    program: Path = SNOWMELT

    def for_other_users(self) -> None:
        """Runs the programs from where another user may execute them: the builds may be below the
        home folder of root."""
        place = self.folder / "bin"
        place.mkdir()
        for name in ("snowmelt", "snowmelt-query"):
            try:
                (place / name).hardlink_to(SNOWMELT.with_name(name))
            except OSError:
                shutil.copy(SNOWMELT.with_name(name), place)
        self.folder.chmod(0o755)
        self.program = place / "snowmelt"

    def environ(self) -> dict[str, str]:
        places = {"SNOWMELT_STATE": self.folder / "state", "SNOWMELT_RUN": self.folder / "run"}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SNOWMELT_", "AWS_"))}
        inherited["SNOWMELT_SCAN_TASK"] = os.environ["SNOWMELT_SCAN_TASK"]
        own = {k: str(v) for k, v in places.items()} | self.environment
        return inherited | SERVER_USER | own

    def start(self, *arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.program), "--errors", "json", *map(str, arguments)],
            cwd=cwd or self.folder,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str], timeout: float = 180) -> Result:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
            pytest.fail(f"did not end within {timeout} s; stderr:\n{err}")
        return Result(process.returncode, out, err)

    def run(self, *arguments: object, timeout: float = 180, cwd: Path | None = None) -> Result:
        return self.finish(self.start(*arguments, cwd=cwd), timeout)

    def python(self, program: str, timeout: float = 300) -> Result:
        """Runs a program that uses the SDK of this checkout."""
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=self.environ() | {"PYTHONPATH": str(PYTHON)},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def sql(self, query: str, *arguments: object, **options: Any) -> Result:
        return self.run("sql", query, "-o", "json", *arguments, **options)

    def rows(self, query: str, *arguments: object, **options: Any) -> list[dict[str, Any]]:
        done = self.sql(query, *arguments, **options).succeeded()
        return [json.loads(line) for line in done.out.splitlines()]


def descendants(pid: int) -> dict[int, str]:
    """All processes below one, with their command lines."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(folder.name))
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            try:
                line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            found[child] = line.decode(errors="replace").strip()
            todo.append(child)
    return found


def wait_for(
    what: str, condition: Callable[[], Any], seconds: float = 60, pause: float = 0.02
) -> Any:
    """Waits for a true value and returns it; the failure says what was expected."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(pause)
    pytest.fail(f"waited {seconds} s for {what}")


def process_below(pid: int, words: str) -> int:
    """Waits for a process below `pid` whose command line has the words."""

    def find() -> int | None:
        return next((p for p, line in descendants(pid).items() if words in line), None)

    return int(wait_for(f"a process `{words}`", find))


def pytest_configure(config: pytest.Config) -> None:
    """A worker of `scripts/e2e` has a /tmp of its own, without the folder that it is told of."""
    if hasattr(config, "workerinput"):
        Path(config.option.basetemp).parent.mkdir(parents=True, exist_ok=True)
    else:
        config.pluginmanager.register(FailureNames(config))


class FailureNames:
    """Names a test when it fails, and not only after the last one, half an hour later."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line("")
            terminal.write_line(f"failed ({report.when}): {report.nodeid}")


@pytest.fixture(scope="session", autouse=True)
def machine() -> None:
    if not SNOWMELT.exists():
        pytest.exit("the binary is not built: make build", returncode=2)
    if os.geteuid() != 0:
        pytest.exit("sandboxes need root in this version: sudo make e2e", returncode=2)


@pytest.fixture(scope="session")
def data() -> Path:
    """TPC-H at scale factor 0.01, several files of each large table."""
    return tpch("0.01", ["lineitem", "orders", "customer"], parts=4)


@pytest.fixture(scope="module")
def tables() -> dict[str, Path]:
    """All tables of TPC-H, by name."""
    return tpch_tables()


@pytest.fixture(scope="module")
def reference(tables: dict[str, Path]) -> Reference:
    """DuckDB over the tables of a module."""
    return Reference(tables)


@pytest.fixture(scope="session")
def shared_folder(machine: None) -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def snowmelt(shared_folder: Path) -> Snowmelt:
    """With a state folder that all tests share, so that packages are unpacked once."""
    return Snowmelt(shared_folder)


@pytest.fixture
def alone(machine: None) -> Iterator[Snowmelt]:
    """With a state folder that no other test has seen."""
    with short_folder() as folder:
        yield Snowmelt(folder)


@pytest.fixture(scope="module")
def served(machine: None) -> Iterator[Registry]:
    """A registry that the tests of one file share."""
    with short_folder() as folder:
        running = registry(folder)
        yield running
        running.stop()


if SERVER_USER:

    @pytest.fixture
    def tmp_path(tmp_path: Path) -> Path:
        """The folder of a test, through which the user of the server can pass."""
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(0o755)
        return tmp_path


@pytest.fixture(autouse=True)
def nothing_left(machine: None) -> Iterator[None]:
    """After each test the machine has the same processes, mounts and files as before."""
    before = MachineState()
    yield
    # What a failed call refers to, such as the file of a broadcast, goes with its traceback.
    gc.collect()
    left = before.remaining_within(CLEAN_WITHIN_S)
    assert not left, f"left behind: {left}"


@pytest.fixture
def udf_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a file of functions."""

    def write(text: str) -> Path:
        path = tmp_path / "udfs.py"
        path.write_text("import snowmelt as sm\n\n" + text)
        return path

    return write
