"""Nothing is built twice: building, testing and linting use the same features of every crate.

A test that switches on one more feature of a crate far down (say `rustix`) has everything above
it built a second time, and DataFusion is above nearly everything.
"""

import subprocess
from pathlib import Path


def _features(checkout: Path, edges: str) -> dict[str, str]:
    command = ["cargo", "tree", "--locked", "--workspace", "--prefix", "none", "-e", edges]
    done = subprocess.run(
        [*command, "-f", "{p}|{f}"], cwd=checkout, check=True, stdout=subprocess.PIPE, text=True
    )
    lines = (line.removesuffix(" (*)") for line in done.stdout.splitlines())
    return dict(line.rsplit("|", 1) for line in lines if "|" in line)


def test_tests_switch_on_no_feature_of_a_dependency(checkout: Path) -> None:
    built, tested = _features(checkout, "no-dev"), _features(checkout, "normal,build,dev")
    assert len(built) > 100
    differing = {
        crate: (features, tested[crate])
        for crate, features in built.items()
        if tested.get(crate, features) != features
    }
    assert not differing
