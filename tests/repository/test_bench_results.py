"""RESULTS.md is made of a file for each experiment: one is measured again without the others."""

import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from common.figures import Section
from common.results import Result, page

NAMES = ["scans", "hosts", "never-run"]


def measured(folder: Path, name: str, seconds: str, *, kept: bool = True) -> None:
    section = Section(f"Experiment {name}")
    section.say(f"{name} took {seconds} s.")
    section.promise(f"time of {name}", "at most 2 s", f"{seconds} s", kept)
    Result.of(section, "2026-11-24", "2 x processor", ["DuckDB 2"]).write(folder / f"{name}.json")


def text(folder: Path) -> str:
    return page(Result.read_all(folder, NAMES))


def test_a_section_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    for name in ("hosts", "scans"):
        measured(tmp_path, name, "1.5")
    before = text(tmp_path)
    measured(tmp_path, "scans", "3.5", kept=False)
    after = text(tmp_path)
    changed = [line for line in before.splitlines() if line not in after.splitlines()]
    assert changed == ["| time of scans | at most 2 s | 1.5 s | kept |", "scans took 1.5 s."]
    assert "| time of scans | at most 2 s | 3.5 s | **missed** |" in after
    assert after.index("## Experiment scans") < after.index("## Experiment hosts")


def release(manifest: Path) -> dict[str, Any]:
    """How an external crate is compiled in release, without the crates of the workspace."""
    profile = tomllib.loads(manifest.read_text())["profile"]["release"]
    packages = profile.pop("package")
    of_others = {name: how for name, how in packages.items() if not name.startswith("snowmelt-")}
    return {**profile, "incremental": False, "package": of_others}


def test_peers_on_several_hosts_are_compiled_like_the_product(checkout: Path) -> None:
    peers = checkout / "bench/peers/clusters/Cargo.toml"
    assert release(peers) == release(checkout / "Cargo.toml")
