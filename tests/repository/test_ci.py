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
MAKEFILE = """build check build-tests test-rust test-python:
e2e:
	@scripts/timed e2e python -m pytest -q tests/e2e
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
    for name in (".ci/run", "scripts/failed-tests", "scripts/rust-tests", "scripts/timed"):
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


def test_the_log_ends_with_the_tests_that_failed(checkout: Path) -> None:
    write(checkout, "def test_a():\n    assert 1 == 2, 'numbers'\ndef test_b():\n    pass\n")
    code, log = run(checkout)
    assert code == 1
    test = ["  test_it::test_a", "    AssertionError: numbers assert 1 == 2"]
    ends = ["e2e: 1 failed:", *test, "e2e-second: 1 failed:", *test]
    assert [line for line in log if line][-6:] == ends


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
    assert "running 1 failed tests again" in log
    assert "  test_it::test_that_passes_later" in log[-3:]


def test_many_failures_are_not_run_again(checkout: Path) -> None:
    write(checkout, "".join(f"def test_{n}():\n    assert False\n" for n in range(4)))
    code, log = run(checkout)
    assert code == 1
    assert not any("again" in line for line in log)


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


def test_checks_run_beside_end_to_end_tests(checkout: Path) -> None:
    write(checkout, WAITS_FOR_THE_CHECKS)
    rule(checkout, "check", "nice >nice-of-check", "touch checks", WAIT_FOR_THE_TEST)
    # All that may take Cargo's lock is built before.
    rule(checkout, "build", "test ! -e checks")
    rule(checkout, "test-rust", "test -e tested-compiled")
    rule(checkout, "build-tests", "touch tested-compiled")
    code, _ = run(checkout)
    assert code == 0
    assert (checkout / "nice-of-check").read_text().strip() == "19"


@pytest.mark.parametrize("target", ["check", "build-tests"])
def test_a_check_that_fails_is_shown_after_the_end_to_end_tests(
    checkout: Path, target: str
) -> None:
    write(checkout, "def test_a():\n    pass\n")
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
    rule(checkout, "check", "echo $$$$ >pid; touch checks; exec sleep 600")
    assert run(checkout)[0] == 1
    pid = int((checkout / "pid").read_text())
    deadline = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.01)


def test_a_check_that_failed_is_shown_when_end_to_end_tests_fail_too(checkout: Path) -> None:
    write(checkout, WAITS_FOR_THE_CHECKS + "    assert False\n")
    (checkout / "tests/e2e/test_that_fails_too.py").write_text(
        "".join(f"def test_{n}():\n    assert False\n" for n in range(4))
    )
    ended = "( until grep -q check $$SNOWMELT_REPORTS/ended; do sleep 0.01; done; touch checks ) &"
    rule(checkout, "check", ended, "echo what is wrong >&2", "exit 7")
    code, log = run(checkout)
    assert code == 1
    assert "what is wrong" in log


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
    cargo_test = "scripts/timed cargo-test scripts/rust-tests --release"
    rule(checkout, "test-rust", cargo_test)
    rule(checkout, "test-python", "touch tested")
    homes = {"CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup"}
    return {name: os.environ.get(name, str(Path.home() / at)) for name, at in homes.items()}


def test_a_test_of_rust_that_passes_when_it_runs_again_is_named(checkout: Path) -> None:
    write(checkout, "def test_a():\n    pass\n")
    code, log = run(checkout, **crate(checkout, CRATE))
    assert code == 0
    assert [line for line in log if line][-3:-1] == [
        "cargo-test: 1 failed:",
        "  inner::passes_later",
    ]
    assert log[-1].startswith("    src/lib.rs:") and log[-1].endswith("the first time")
    assert (checkout / "tested").exists()


@pytest.mark.parametrize(
    ("code", "test", "error"),
    [
        (FAILS, "fails", "numbers"),
        (FAILS_IN_A_DOCUMENT, "src/lib.rs - documented (line 15)", "cannot run again by its name"),
    ],
)
def test_a_test_of_rust_that_fails_again_fails_the_run(
    checkout: Path, code: str, test: str, error: str
) -> None:
    write(checkout, "def test_a():\n    pass\n")
    exited, log = run(checkout, **crate(checkout, CRATE + code))
    assert exited == 1
    second = log[log.index("cargo-test-second: 1 failed:") :]
    assert second[1] == f"  {test}" and error in second[2]
    assert not (checkout / "tested").exists()


# A test that fails in one program, and another program that is killed.
ENDS = """
#[cfg(not(test))]
pub fn main() {}
#[test]
fn ends() {
    std::process::abort();
}
"""


def test_a_program_of_tests_that_is_killed_fails_the_run(checkout: Path) -> None:
    write(checkout, "def test_a():\n    pass\n")
    homes = crate(checkout, CRATE)
    (checkout / "src/main.rs").write_text(ENDS)
    code, log = run(checkout, **homes)
    assert code == 1
    failed = log[log.index("cargo-test: 2 failed:") :]
    assert "  cargo" in failed and any("SIGABRT" in line for line in failed)
    assert not (checkout / "tested").exists()


# Tests that fail without a name in the log, and that end their program as if one had failed.
UNNAMED = """
#[test]
fn fails_silently() {
    std::panic::set_hook(Box::new(|_| {}));
    panic!();
}
"""
EXITS = """
#[cfg(not(test))]
pub fn main() {}
#[test]
fn exits() {
    std::process::exit(101);
}
"""


@pytest.mark.parametrize("program", [UNNAMED, EXITS])
def test_what_is_not_named_fails_the_run(checkout: Path, program: str) -> None:
    write(checkout, "def test_a():\n    pass\n")
    homes = crate(checkout, CRATE)
    main = "" if "fn main" in program else "fn main() {}\n"
    (checkout / "src/main.rs").write_text(main + program)
    code, log = run(checkout, **homes)
    assert code == 1
    assert "  inner::passes_later" in log
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
    homes = crate(checkout, CRATE + LEAVES)
    try:
        code, log = run(checkout, **homes)
    finally:
        pids = [int(pid) for pid in (checkout / "pids").read_text().split()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert (code, len(pids)) == (1, 2)
    assert "  leaves_a_process" in log
