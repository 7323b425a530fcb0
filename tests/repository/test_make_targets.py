"""`make demo` needs no root, and builds only what it uses."""

import subprocess
from pathlib import Path


def _recipe(checkout: Path, target: str) -> str:
    command = ["make", "--no-print-directory", "-n", target]
    return subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout


def test_the_demo_needs_no_root(checkout: Path) -> None:
    assert "root" not in _recipe(checkout, "demo")


def test_the_demo_builds_only_the_product(checkout: Path) -> None:
    assert "cargo" not in _recipe(checkout, "demo")
    built = (checkout / "scripts/build").read_text()
    assert "--package snowmelt --package snowmelt-query\n" in built and "--workspace" not in built


def test_the_demo_installs_no_test_dependencies(checkout: Path) -> None:
    """The packages of `scripts/setup` without an argument, on a machine without any of them."""
    script = (checkout / "scripts/setup").read_text()
    functions = script.split("missing_packages() {")[1].split("\n}\n")[0]
    shell = f'command() {{ return 1; }}; python3() {{ return 1; }}; extra=""; {functions}'
    done = subprocess.run(
        ["bash", "-c", shell.replace("local missing", "missing")],
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = done.stdout.split()
    assert "build-essential" in wanted and "git" in wanted
    assert not {"umoci", "skopeo", "docker-registry", "docker.io", "strace"} & set(wanted), wanted
