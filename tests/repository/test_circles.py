"""Neither files nor rooms of a crate import each other in a circle.

An import is a path that begins with `crate::` or `super::`. A path to an item that a module passes
on counts as an import of the module that has the item. What a `mod.rs` names of its own folder does
not count, and neither do tests.

A room is a folder or a file at the top of a crate's sources, with all that is below it. What the
root of the crate (`lib.rs`, `main.rs`) imports does not count.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

Module = tuple[str, ...]
Graph = dict[Module, set[Module]]

TEST_MODULE = re.compile(
    r"^#\[cfg\(test\)\]\n(?:#\[.*\]\n)*(?:pub(?:\([^)]*\))? )?mod (\w+);", re.MULTILINE
)


def _module(source: Path, file: Path) -> Module:
    parts = file.relative_to(source).with_suffix("").parts
    # The root of a program beside a library is a crate of its own.
    if parts == ("main",) and (source / "lib.rs").exists():
        return parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def _code(text: str) -> str:
    """Without comments and without the tests at the end."""
    tests = re.search(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, re.MULTILINE)
    return re.sub(r"//.*", "", text[: tests.start()] if tests else text)


def _paths(tree: str) -> Iterator[list[str]]:
    """The paths of a tree such as `a::{b, c::{d, e as f}}`."""
    prefix, brace, inner = tree.strip().partition("{")
    if not brace:
        yield [part.strip() for part in prefix.split(" as ")[0].split("::") if part.strip()]
        return
    depth, begin = 0, 0
    inner = inner.rstrip().removesuffix("}") + ","
    for at, mark in enumerate(inner):
        if mark == "," and depth == 0:
            if inner[begin:at].strip():
                yield from _paths(prefix + inner[begin:at].strip())
            begin = at + 1
        depth += {"{": 1, "}": -1}.get(mark, 0)


def _used(code: str) -> Iterator[list[str]]:
    trees = r"\buse\s+([^;]*);"
    for tree in re.findall(trees, code):
        yield from _paths(re.sub(r"\s+", " ", tree))
    for path in re.findall(r"(?<!\$)\b(?:crate|super)(?:::\w+)+", re.sub(trees, "", code)):
        yield path.split("::")


def _passed_on(code: str) -> Iterator[list[str]]:
    for tree in re.findall(r"^pub(?:\([^)]*\))? use ([^;]*);", code, re.MULTILINE):
        yield from _paths(re.sub(r"\s+", " ", tree))


def _found(path: list[str], at: Module, modules: set[Module]) -> tuple[Module, str]:
    """The module that a path leads to, and the item in it."""
    path = list(path)
    if path[0] == "crate":
        at, path = (), path[1:]
    while path and path[0] in ("super", "self"):
        at, path = at[:-1] if path[0] == "super" else at, path[1:]
    while path and (*at, path[0]) in modules:
        at, path = (*at, path[0]), path[1:]
    return at, path[0] if path else ""


def imports(source: Path) -> Graph:
    """What each module of a crate imports."""
    code = {_module(source, file): _code(file.read_text()) for file in source.rglob("*.rs")}
    modules = set(code)
    origin = {}
    for module, text in code.items():
        for path in _passed_on(text):
            found = _found(path, module, modules)
            if found[1] and found[0] != module:
                origin[module, path[-1]] = found
    graph: Graph = {module: set() for module in modules}
    for module, text in code.items():
        for path in _used(text):
            if path[0] not in ("crate", "super"):
                continue
            found = _found(path, module, modules)
            followed = set()
            while found in origin and found not in followed:
                followed.add(found)
                found = origin[found]
            if found[0] in modules - {module}:
                graph[module].add(found[0])
    return graph


def modules_of_tests(source: Path) -> set[Module]:
    """The files that only tests have."""
    return {
        (*_module(source, file), name)
        for file in source.rglob("*.rs")
        for name in TEST_MODULE.findall(file.read_text())
    }


def rooms(source: Path) -> Graph:
    """What each room of a crate imports."""
    tests = modules_of_tests(source)

    def room(module: Module) -> Module | None:
        is_test = any(module[: length + 1] in tests for length in range(len(module)))
        return None if is_test or not module else module[:1]

    graph: Graph = {}
    for module, used in imports(source).items():
        if (own := room(module)) is not None:
            others = {other for one in used if (other := room(one)) is not None}
            graph.setdefault(own, set()).update(others - {own})
    return graph


def _reached(graph: Graph, begin: Module) -> set[Module]:
    reached: set[Module] = set()
    waiting = [begin]
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def circles(graph: Graph) -> list[set[str]]:
    """Groups of modules that all reach each other."""
    reached = {module: _reached(graph, module) for module in graph}
    groups = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }
    return sorted(({"/".join(one) or "lib" for one in group} for group in groups), key=sorted)


def test_files_do_not_import_each_other_in_a_circle(checkout: Path) -> None:
    crates = [path.parent for path in sorted(checkout.glob("crates/*/Cargo.toml"))]
    found = {crate.name: group for crate in crates if (group := circles(imports(crate / "src")))}
    assert not found, "move what they share to a file below them"


def test_rooms_do_not_import_each_other_in_a_circle(checkout: Path) -> None:
    crates = [path.parent.name for path in sorted(checkout.glob("crates/*/Cargo.toml"))]
    found = {crate: circles(rooms(checkout / "crates" / crate / "src")) for crate in crates}
    in_circles = {crate: list(map(sorted, groups)) for crate, groups in found.items() if groups}
    assert not in_circles, "move what the rooms share to a room below them"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.rs": "use crate::b::B;", "b.rs": "use super::a;"}, [{"a", "b"}]),
        ({"a.rs": "use crate::b::B;", "b.rs": "// use super::a;"}, []),
        (
            {"lib.rs": "pub use a::A;", "a.rs": "use crate::b;", "b.rs": "use crate::A;"},
            [{"a", "b"}],
        ),
        (
            {"a.rs": "fn f() { super::b::g() }", "b.rs": "use crate::{a::{self, X}, c};"},
            [{"a", "b"}],
        ),
        ({"a.rs": "use crate::b;", "b.rs": "#[cfg(test)]\nmod tests {\nuse crate::a;\n}"}, []),
        ({"a/mod.rs": "use b::B;", "a/b.rs": "use super::A;"}, []),
    ],
)
def test_circles_are_found(tmp_path: Path, files: dict[str, str], expected: list[set[str]]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert circles(imports(tmp_path)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"a/mod.rs": "", "a/x.rs": "use crate::b;", "b/mod.rs": "", "b/y.rs": "use crate::a;"},
            [{"a", "b"}],
        ),
        ({"a/mod.rs": "use x::X;", "a/x.rs": "use super::A;"}, []),
        ({"lib.rs": "use a::A;", "a.rs": "use crate::A;"}, []),
        (
            {
                "a/mod.rs": "#[cfg(test)]\nmod t;",
                "a/t.rs": "use crate::b;",
                "b.rs": "use crate::a;",
            },
            [],
        ),
        (
            {
                "lib.rs": "#[cfg(test)]\npub(crate) mod rig;",
                "rig.rs": "use crate::b;",
                "b.rs": "use crate::rig;",
            },
            [],
        ),
    ],
)
def test_circles_of_rooms_are_found(
    tmp_path: Path, files: dict[str, str], expected: list[set[str]]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert circles(rooms(tmp_path)) == expected
