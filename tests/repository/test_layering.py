"""A crate depends only on crates below it, and only `kernel` holds unsafe code."""

import re
import tomllib
from pathlib import Path
from typing import Any

# Bottom up, as in CONTRIBUTING.md.
LAYERS = [
    "types",
    "ledger",
    "tree",
    "schedule",
    "simulate",
    "kernel",
    "rpc",
    "telemetry",
    "image",
    "network",
    "sandbox",
    "broker",
    "package",
    "wire",
    "api",
    "files",
    "store",
    "udf",
    "execute",
    "plan",
    "query",
    "node",
    "tasks",
    "control",
    "lab",
    "snowmelt",
]
# Outside the layers, by folder: these may use all layers, and no layer may use them.
BESIDE = {"bench": "bench", "bench-lean": "bench/lean"}


def _noun(package: str) -> str:
    return package.removeprefix("snowmelt-")


def test_every_crate_is_listed_in_the_layers(workspace: dict[str, Any]) -> None:
    found = {_noun(package["name"]) for package in workspace["packages"]}
    assert found == set(LAYERS) | set(BESIDE)


def test_crate_folders_match_their_names(workspace: dict[str, Any], checkout: Path) -> None:
    for package in workspace["packages"]:
        folder = Path(package["manifest_path"]).parent.relative_to(checkout)
        noun = _noun(package["name"])
        assert folder == Path(BESIDE.get(noun, f"crates/{noun}"))


def test_crates_depend_only_on_lower_layers(workspace: dict[str, Any]) -> None:
    """Including dev-dependencies: tests that use higher layers would make cycles."""
    upward = [
        f"{package['name']} depends on {dependency['name']}"
        for package in workspace["packages"]
        if (noun := _noun(package["name"])) not in BESIDE
        for dependency in package["dependencies"]
        if dependency["name"].startswith("snowmelt")
        and (
            _noun(dependency["name"]) in BESIDE
            or LAYERS.index(_noun(dependency["name"])) >= LAYERS.index(noun)
        )
    ]
    assert not upward


def _used(workspace: dict[str, Any]) -> dict[str, set[str]]:
    """The crates of the layers, with those that each depends on."""
    return {
        noun: {
            _noun(dependency["name"])
            for dependency in package["dependencies"]
            if dependency["name"].startswith("snowmelt") and dependency["kind"] is None
        }
        for package in workspace["packages"]
        if (noun := _noun(package["name"])) not in BESIDE
    }


def _below(used: dict[str, set[str]], crate: str) -> set[str]:
    return used[crate].union(*(_below(used, other) for other in used[crate]))


def _drawn(checkout: Path) -> dict[str, set[str]]:
    """The arrows of the picture in ARCHITECTURE.md."""
    text = (checkout / "ARCHITECTURE.md").read_text()
    picture = text.split("```mermaid\n")[1].split("```")[0]
    arrows = re.findall(r"^    (\w+) --> (.*)$", picture, re.MULTILINE)
    return {source: set(targets.split(" & ")) for source, targets in arrows}


def test_the_picture_shows_every_crate_and_its_dependencies(
    workspace: dict[str, Any], checkout: Path
) -> None:
    used, drawn = _used(workspace), _drawn(checkout)
    assert drawn.keys() | set().union(*drawn.values()) == used.keys()
    # What another dependency uses anyway is not drawn.
    direct = {
        crate: others - set().union(*(_below(used, other) for other in others))
        for crate, others in used.items()
    }
    assert drawn == {crate: others for crate, others in direct.items() if others}


def test_the_server_links_no_query_engine(workspace: dict[str, Any]) -> None:
    """SQL and user files are parsed only by `snowmelt-query`, in sandboxes."""
    by_name = {package["name"]: package for package in workspace["packages"]}
    reached, waiting = set(), ["snowmelt"]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        for dependency in by_name[name]["dependencies"] if name in by_name else []:
            if dependency["kind"] is None:
                waiting.append(dependency["name"])
    assert "snowmelt-node" in reached
    engines = {"snowmelt-execute", "snowmelt-plan", "snowmelt-query"}
    assert not {name for name in reached if "datafusion" in name or name in engines}


def test_the_workspace_denies_unsafe_code(checkout: Path) -> None:
    lints = tomllib.loads((checkout / "Cargo.toml").read_text())["workspace"]["lints"]["rust"]
    assert lints["unsafe_code"] in ("deny", "forbid")


def test_every_crate_uses_the_lints_of_the_workspace(
    workspace: dict[str, Any],
) -> None:
    for package in workspace["packages"]:
        manifest = tomllib.loads(Path(package["manifest_path"]).read_text())
        assert manifest.get("lints") == {"workspace": True}, package["name"]


def test_only_kernel_allows_unsafe_code(checkout: Path) -> None:
    allowing = {
        str(file.relative_to(checkout))
        for folder in ("crates", "bench")
        for file in (checkout / folder).rglob("*.rs")
        if re.search(r"(allow|expect|warn)\([^)]*unsafe_code", file.read_text())
    }
    assert {Path(file).parts[:2] for file in allowing} == {("crates", "kernel")}


def test_every_unsafe_block_has_a_safety_comment(checkout: Path) -> None:
    """A SAFETY comment is directly above each `unsafe` block or impl."""
    silent = []
    for file in sorted((checkout / "crates/kernel").rglob("*.rs")):
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            code = line.split("//")[0]
            if not re.search(r"\bunsafe\s*(\{|impl\b)", code):
                continue
            above = "\n".join(lines[max(0, number - 6) : number + 1])
            if "SAFETY" not in above:
                silent.append(f"{file.relative_to(checkout)}:{number + 1}")
    assert not silent
