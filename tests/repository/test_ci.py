"""What `.ci/run` runs, and what it does when something fails, on a checkout with few tests."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# These tests run beside others, at the lowest priority.
LIMIT_S = 600
# The same targets as the project's. All but `e2e` pass.
MAKEFILE = """lint build check-rust build-tests test-rust test-python:
e2e:
	@scripts/timed e2e python -m pytest -q tests/e2e
e2e-again:
	@scripts/timed e2e-second python -m pytest -q --last-failed tests/e2e
"""
PASSES_LATER = """
from pathlib import Path
def test_that_passes_later():
    ran = Path(__file__).with_name("ran")
    is_first = not ran.exists()
    ran.touch()
    assert not is_first, "the first time"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (
        ".ci/run",
        ".config/nextest.toml",
        ".config/tests.toml",
        "scripts/failures",
        "scripts/rust-tests",
        "scripts/timed",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "scripts/env").write_text(f'PATH="{Path(sys.executable).parent}:$PATH"\n')
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "tests/e2e").mkdir(parents=True)
    (tmp_path / "tests/e2e/pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(checkout: Path, **extra: str) -> tuple[int, list[str]]:
    """The exit code, and the end of the log.

    Nothing of continuous integration's own environment is passed on: with its CI and
    CARGO_TARGET_DIR, on a disk with little free, this run would remove the builds of the project.
    """
    environment = {
        "HOME": str(checkout),
        "PATH": f"{checkout}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        **extra,
    }
    ran = subprocess.run(
        [checkout / ".ci/run"], env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    return ran.returncode, ran.stderr.splitlines()


def write(checkout: Path, tests: str) -> None:
    (checkout / "tests/e2e/test_it.py").write_text(tests)


def test_the_log_ends_with_the_tests_that_failed_and_what_they_printed(checkout: Path) -> None:
    write(checkout, "def test_a():\n    assert 1 == 2, 'numbers'\ndef test_b():\n    pass\n")
    code, log = run(checkout)
    assert code == 1
    first, second = log.index("e2e: 1 failed:"), log.index("e2e-second: 1 failed:")
    assert log[first + 1] == log[second + 1] == "  test_it::test_a"
    for printed in (log[first:second], log[second:]):
        assert any("AssertionError: numbers" in line for line in printed)


def test_the_cached_builds_are_removed_only_in_ci_if_little_of_the_disk_is_free(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(checkout, "def test_a():\n    pass\n")
    of_ci = checkout / "of-ci"
    of_ci.mkdir()
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(of_ci))
    _free_gib(checkout, 19)
    assert run(checkout)[0] == 0
    assert of_ci.exists()

    cached = checkout / "cache/snowmelt-ci/target"
    cached.mkdir(parents=True)
    _free_gib(checkout, 20)
    assert run(checkout, CI="true", XDG_CACHE_HOME=f"{checkout}/cache")[0] == 0
    assert cached.exists()
    _free_gib(checkout, 19)
    assert run(checkout, CI="true", XDG_CACHE_HOME=f"{checkout}/cache")[0] == 0
    assert not cached.exists()


def _free_gib(checkout: Path, free: int) -> None:
    """Makes `df` tell this much."""
    program = checkout / "bin/df"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\nprintf 'Avail\\n  {free}G\\n'\n")
    program.chmod(0o755)


def test_what_passes_when_it_runs_again_is_named(checkout: Path) -> None:
    write(checkout, PASSES_LATER + "def test_b():\n    pass\n")
    code, log = run(checkout)
    assert code == 0
    last = log[log.index("e2e: 1 failed:") :]
    assert last[1] == "  test_it::test_that_passes_later"
    assert any("the first time" in line for line in last)


def test_many_failures_are_not_run_again(checkout: Path) -> None:
    write(checkout, "".join(f"def test_{n}():\n    assert False\n" for n in range(4)))
    code, log = run(checkout)
    assert code == 1
    assert "4 tests of e2e failed the first time; 3 may" in log
    assert not any("e2e-second" in line for line in log)


def rule(checkout: Path, target: str, *lines: str) -> None:
    """What a target does in addition."""
    with (checkout / "Makefile").open("a") as makefile:
        makefile.write(f"{target}:\n" + "".join(f"\t@{line}\n" for line in lines))


WAITS_FOR_THE_CHECKS = """
import time
from pathlib import Path
def test_it():
    deadline = time.monotonic() + 300
    while not Path("checks").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    Path("tested").touch()
"""
WAIT_FOR_THE_TEST = "timeout 300 sh -c 'until [ -e tested ]; do sleep 0.01; done'"


def test_what_fails_soon_comes_first(checkout: Path) -> None:
    write(checkout, "def test_a():\n    pass\n")
    rule(checkout, "lint", "test ! -e built")
    rule(checkout, "build", "touch built")
    assert run(checkout)[0] == 0
    rule(checkout, "lint", "exit 7")
    (checkout / "built").unlink()
    assert run(checkout)[0] == 1
    assert not (checkout / "built").exists()


def test_checks_run_beside_end_to_end_tests(checkout: Path) -> None:
    write(checkout, WAITS_FOR_THE_CHECKS)
    rule(checkout, "check-rust", "nice >nice-of-check", "touch checks", WAIT_FOR_THE_TEST)
    # All that may take Cargo's lock is built before.
    rule(checkout, "build", "test ! -e checks")
    rule(checkout, "test-rust", "test -e tested-compiled")
    rule(checkout, "build-tests", "touch tested-compiled")
    code, _ = run(checkout)
    assert code == 0
    assert (checkout / "nice-of-check").read_text().strip() == "19"


@pytest.mark.parametrize("target", ["check-rust", "build-tests"])
def test_a_check_that_fails_ends_the_end_to_end_tests(checkout: Path, target: str) -> None:
    write(checkout, "import time\ndef test_a():\n    time.sleep(3600)\n")
    rule(checkout, target, "echo what is wrong >&2", "exit 7")
    rule(checkout, "test-rust", "touch tested")
    code, log = run(checkout)
    assert code == 1
    assert "what is wrong" in log
    assert any(line.startswith(f"make {target} failed") for line in log)
    assert not (checkout / "tested").exists()


def test_checks_end_with_a_run_that_failed(checkout: Path) -> None:
    write(checkout, WAITS_FOR_THE_CHECKS + "    assert False\n")
    (checkout / "tests/e2e/test_that_fails_too.py").write_text(
        "".join(f"def test_{n}():\n    assert False\n" for n in range(4))
    )
    rule(checkout, "check-rust", "echo $$$$ >pid; touch checks; exec sleep 600")
    assert run(checkout)[0] == 1
    pid = int((checkout / "pid").read_text())
    deadline = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.01)


CRATE = """
#[test]
fn passes() {
    print!("no more");
}

mod inner {
    #[test]
    fn passes_later() {
        let is_first = std::fs::File::create_new("ran").is_ok();
        assert!(!is_first, "the first time");
    }
}
"""
PASSES_SECOND = """
#[test]
fn NAME() {
    assert!(std::fs::File::create_new("ran-NAME").is_err(), "the first time");
}
"""
FAILS = """
#[test]
fn fails() {
    assert_eq!(1, 2, "numbers");
}
"""
FAILS_IN_A_DOCUMENT = """
/// ```
/// panic!("by the document");
/// ```
pub fn documented() {}
"""


def crate(checkout: Path, code: str) -> dict[str, str]:
    """Makes the tests of Rust those of a small crate; returns where its compiler is."""
    (checkout / "src").mkdir()
    (checkout / "src/lib.rs").write_text(code)
    package = 'name = "it"\nversion = "0.1.0"\n'
    (checkout / "Cargo.toml").write_text(f'[package]\n{package}edition = "2024"\n')
    (checkout / "Cargo.lock").write_text(f"version = 4\n[[package]]\n{package}")
    shutil.copy(ROOT / "rust-toolchain.toml", checkout)
    rule(checkout, "test-rust", "scripts/timed test-rust scripts/rust-tests --release")
    rule(checkout, "test-python", "touch tested")
    homes = {"CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup"}
    return {name: os.environ.get(name, str(Path.home() / at)) for name, at in homes.items()}


def test_our_crates_are_compiled_once_without_optimisation(checkout: Path) -> None:
    write(checkout, "def test_a():\n    pass\n")
    rule(checkout, "build test-rust", "scripts/build")
    shutil.copy(ROOT / "scripts/build", checkout / "scripts")
    cargo = checkout / "bin/cargo"
    cargo.parent.mkdir()
    cargo.write_text('#!/bin/sh\necho "$*" >>builds\n')
    cargo.chmod(0o755)
    assert run(checkout)[0] == 0
    builds = (checkout / "builds").read_text().splitlines()
    assert builds and all("--config .config/tests.toml" in line for line in builds)


def test_end_to_end_tests_use_copies_of_the_programs(checkout: Path) -> None:
    """The tests of Rust are compiled at the same time, and replace the programs by their own."""
    program = checkout / "target/release/snowmelt"
    program.parent.mkdir(parents=True)
    program.write_text("optimised")
    program.with_name("snowmelt-query").write_text("optimised too")
    write(
        checkout,
        "import os, pathlib\ndef test_a():\n"
        "    folder = pathlib.Path(os.environ['SNOWMELT_PROGRAMS'])\n"
        "    assert (folder / 'snowmelt').read_text() == 'optimised'\n"
        # Not where Cargo writes, and not in /tmp, which end-to-end tests do not see.
        "    assert folder == pathlib.Path('target/programs').absolute()\n",
    )
    assert run(checkout)[0] == 0


def test_a_test_of_rust_that_passes_when_it_runs_again_is_named(checkout: Path) -> None:
    write(checkout, "def test_a():\n    pass\n")
    code, log = run(checkout, **crate(checkout, CRATE))
    assert code == 0
    last = log[log.index("test-rust: 1 failed:") :]
    assert last[1].strip() == "it::inner::passes_later (passed the second time)"
    assert any("the first time" in line for line in last)
    assert (checkout / "tested").exists()


def test_a_test_of_rust_that_passes_the_second_time_fails_the_developers_target(
    checkout: Path,
) -> None:
    environment = {**os.environ, **crate(checkout, CRATE)}
    for name in ("CARGO_TARGET_DIR", "NEXTEST_PROFILE", "SNOWMELT_REPORTS"):
        environment.pop(name, None)
    ran = subprocess.run(["make", "test-rust"], cwd=checkout, env=environment, timeout=LIMIT_S)
    assert ran.returncode != 0


def test_many_tests_of_rust_that_pass_the_second_time_fail_the_run(checkout: Path) -> None:
    write(checkout, "def test_a():\n    pass\n")
    tests = (PASSES_SECOND.replace("NAME", f"number_{number}") for number in range(4))
    code, log = run(checkout, **crate(checkout, "".join(tests)))
    assert code == 1
    assert "4 tests of test-rust failed the first time; 3 may" in log
    assert not (checkout / "tested").exists()


@pytest.mark.parametrize(
    ("code", "error"), [(FAILS, "numbers"), (FAILS_IN_A_DOCUMENT, "by the document")]
)
def test_a_test_of_rust_that_fails_again_fails_the_run(
    checkout: Path, code: str, error: str
) -> None:
    write(checkout, "def test_a():\n    pass\n")
    exited, log = run(checkout, **crate(checkout, CRATE + code))
    assert exited == 1
    assert any(error in line for line in log)
    assert not (checkout / "tested").exists()


# A test that ends its program, beside one that fails.
ENDS = """
#[test]
fn ends() {
    std::process::abort();
}
"""


def test_a_test_that_is_killed_fails_the_run(checkout: Path) -> None:
    write(checkout, "def test_a():\n    pass\n")
    code, log = run(checkout, **crate(checkout, CRATE + ENDS))
    assert code == 1
    failed = log[log.index("test-rust: 2 failed:") :]
    assert "  it::ends" in failed
    assert not (checkout / "tested").exists()


# What it starts keeps the output open.
LEAVES = """
#[test]
fn leaves_a_process() {
    use std::io::Write;
    let started = std::process::Command::new("sleep").arg("3600").spawn().unwrap();
    let pids = std::fs::File::options().create(true).append(true).open("pids");
    writeln!(pids.unwrap(), "{}", started.id()).unwrap();
    panic!("too early");
}
"""


def test_a_process_that_a_test_leaves_does_not_stop_the_run(checkout: Path) -> None:
    write(checkout, "def test_a():\n    pass\n")
    homes = crate(checkout, LEAVES)
    try:
        code, log = run(checkout, **homes)
    finally:
        pids = [int(pid) for pid in (checkout / "pids").read_text().split()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert (code, len(pids)) == (1, 2)
    assert "  it::leaves_a_process" in log
