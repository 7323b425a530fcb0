"""Building, testing and linting use the same features of every crate, so nothing is built twice.

If a test enables one more feature of a low-level crate (such as `rustix`), all crates that depend
on it are built a second time, which usually includes DataFusion.
"""

import subprocess
from pathlib import Path
from typing import Any


def _features(checkout: Path, edges: str) -> dict[str, str]:
    command = ["cargo", "tree", "--locked", "--workspace", "--prefix", "none", "-e", edges]
    done = subprocess.run(
        [*command, "-f", "{p}|{f}"], cwd=checkout, check=True, stdout=subprocess.PIPE, text=True
    )
    lines = (line.removesuffix(" (*)") for line in done.stdout.splitlines())
    return dict(line.rsplit("|", 1) for line in lines if "|" in line)


def test_tests_enable_no_further_features_of_dependencies(checkout: Path) -> None:
    built, tested = _features(checkout, "no-dev"), _features(checkout, "normal,build,dev")
    assert len(built) > 100
    differing = {
        crate: (features, tested[crate])
        for crate, features in built.items()
        if tested.get(crate, features) != features
    }
    assert not differing


def test_no_crate_enables_the_weakened_sandbox(workspace: dict[str, Any], checkout: Path) -> None:
    """The feature `weaken` of the sandbox is only for its own tests."""
    enabling = [
        f"{package['name']}: {dependency['name']}"
        for package in workspace["packages"]
        for dependency in package["dependencies"]
        if "weaken" in dependency["features"]
    ]
    defaults = [p["features"].get("default", []) for p in workspace["packages"]]
    assert not enabling and not any("weaken" in features for features in defaults)
    sandbox = next(f for crate, f in _features(checkout, "no-dev").items() if "-sandbox " in crate)
    assert "weaken" not in sandbox
