"""Dependencies comply with deny.toml: licences, sources and banned crates."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def rules(checkout: Path) -> dict[str, Any]:
    return tomllib.loads((checkout / "deny.toml").read_text())


def allowed(expression: str, licences: set[str]) -> bool:
    """Whether an SPDX expression can be met with the licences: `A AND (B OR C WITH D)`.

    The old `A/B` means `A OR B`.
    """
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    position = 0

    def peek() -> str | None:
        return words[position] if position < len(words) else None

    def take() -> str:
        nonlocal position
        position += 1
        return words[position - 1]

    def either() -> bool:
        met = both()
        while peek() == "OR":
            take()
            right = both()
            met = met or right
        return met

    def both() -> bool:
        met = one()
        while peek() == "AND":
            take()
            right = one()
            met = met and right
        return met

    def one() -> bool:
        if peek() == "(":
            take()
            met = either()
            assert take() == ")", expression
            return met
        name = take()
        if peek() == "WITH":
            take()
            name = f"{name} WITH {take()}"
        return name in licences

    met = either()
    assert position == len(words), f"not an SPDX expression: {expression}"
    return met


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("MIT OR GPL-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("(MIT OR GPL-3.0) AND Zlib", True),
        ("GPL-3.0 OR MIT AND GPL-2.0", False),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("MIT/GPL-3.0", True),
    ],
)
def test_reads_licence_expressions(expression: str, met: bool) -> None:
    assert allowed(expression, {"MIT", "Zlib"}) is met


def test_every_licence_is_allowed(tree: dict[str, Any], rules: dict[str, Any]) -> None:
    licences = set(rules["licenses"]["allow"])
    refused = [
        f"{package['name']} {package['version']}: {package['license']}"
        for package in tree["packages"]
        if not (package["license"] and allowed(package["license"], licences))
    ]
    assert not refused


def test_crates_come_from_the_registry_only(tree: dict[str, Any]) -> None:
    foreign = [
        p["name"] for p in tree["packages"] if (p["source"] or "registry+")[:9] != "registry+"
    ]
    assert not foreign


def test_no_banned_crate_and_no_second_version(tree: dict[str, Any], rules: dict[str, Any]) -> None:
    versions = defaultdict(set)
    for package in tree["packages"]:
        versions[package["name"]].add(package["version"])
    for rule in rules["bans"]["deny"]:
        most = 1 if rule.get("deny-multiple-versions") else 0
        assert len(versions[rule["name"]]) <= most, rule


def test_every_package_has_the_project_licence(workspace: dict[str, Any], checkout: Path) -> None:
    assert {package["license"] for package in workspace["packages"]} == {"Apache-2.0"}
    assert "Version 2.0, January 2004" in (checkout / "LICENSE").read_text()
