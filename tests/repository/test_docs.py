"""Links, error codes, commands and make targets in the documentation exist."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from common.paths import SNOWMELT


def _documents(checkout: Path) -> list[Path]:
    patterns = ("*.md", "docs/**/*.md", "bench/*.md", "python/*.md")
    return sorted(document for pattern in patterns for document in checkout.glob(pattern))


def _anchor(heading: str) -> str:
    """As on code hosts: lower case, without punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _anchors(document: Path) -> set[str]:
    return {_anchor(h) for h in re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)}


def test_links_have_existing_targets(checkout: Path) -> None:
    broken = []
    for document in _documents(checkout):
        for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            if link.startswith(("http://", "https://", "mailto:")):
                continue
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            if not target.exists():
                broken.append(f"{document.relative_to(checkout)}: {link}")
            elif anchor and target.suffix == ".md" and anchor not in _anchors(target):
                broken.append(f"{document.relative_to(checkout)}: {link} (no such heading)")
    assert not broken


def test_files_named_in_tables_and_text_exist(checkout: Path) -> None:
    """A path such as `crates/query/src/plan.rs` in a document is an existing file or folder."""
    roots = "crates|python|bench|docs|demo|scripts|tests"
    missing = [
        f"{document.relative_to(checkout)}: {path}"
        for document in _documents(checkout)
        for path in re.findall(rf"`((?:{roots})/[\w./-]+)`", document.read_text())
        if not (checkout / path).exists()
    ]
    assert not missing


def test_security_md_names_the_escape_tests(checkout: Path) -> None:
    """Each `module::test` in SECURITY.md is a test of tests/escape, and each of those is listed."""
    folder = checkout / "crates/sandbox/tests/escape"
    made = {
        f"{file.stem}::{name}"
        for file in folder.glob("*.rs")
        for name in re.findall(r"#\[test\]\n(?:#\[.*\]\n)*fn (\w+)", file.read_text())
    }
    named = set(re.findall(r"`(\w+::\w+)`", (checkout / "SECURITY.md").read_text()))
    told = {"steps", "the_spawner_binary_is_not_writable_by_others"}
    assert named <= made
    assert {t for t in made if not told & set(t.split("::"))} <= named


def _codes(checkout: Path) -> dict[str, str]:
    source = (checkout / "crates/types/src/error.rs").read_text()
    return dict(re.findall(r'= "(SM-\d{4})", \w+, "([^"]+)";', source))


def test_every_error_code_is_explained(checkout: Path) -> None:
    codes = _codes(checkout)
    assert len(codes) > 20
    headings = re.findall(
        r"^#+ (SM-\d{4}): (.*)$", (checkout / "docs/reference/errors.md").read_text(), re.M
    )
    assert dict(headings) == codes


def _shown_commands(checkout: Path) -> list[tuple[str, list[str]]]:
    """Lines of code blocks of the README and of docs/ that begin with `snowmelt `."""
    found = []
    for document in _documents(checkout):
        for block in re.findall(
            r"```(?:sh|console|bash)\n(.*?)```", document.read_text(), re.DOTALL
        ):
            for line, words in _commands(block):
                if words[:1] == ["snowmelt"]:
                    found.append((f"{document.relative_to(checkout)}: {line}", words[1:]))
    return found


def _commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block, each with its words. A quoted argument may have several lines."""
    command = ""
    for line in block.replace("\\\n", " ").splitlines():
        command = f"{command}\n{line}" if command else line.removeprefix("$ ").strip()
        try:
            words = shlex.split(command.split(" | ")[0], comments=True)
        except ValueError:
            # The quotation goes on in the next line, unless this is no command at all.
            command = command if command.startswith("snowmelt ") else ""
            continue
        yield command, words
        command = ""
    assert not command, f"a quotation that does not end: {command}"


def test_a_command_of_several_lines_is_one() -> None:
    block = '$ snowmelt sql "select 1\n  as x" -o json | head\nit\'s a text\nsnowmelt du\n'
    found = [words for _, words in _commands(block)]
    assert found == [["snowmelt", "sql", "select 1\n  as x", "-o", "json"], ["snowmelt", "du"]]


def _help(subcommands: list[str]) -> str:
    done = subprocess.run(
        [str(SNOWMELT), *subcommands, "--help"], capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def _help_of(words: list[str]) -> str:
    """The help of a command, and of its subcommand if it has one."""
    while words and words[0].startswith("-"):
        # A global option and its value.
        words = words[2:]
    names = [word for word in words[:2] if re.fullmatch(r"[a-z][a-z-]*", word)]
    return _help(names[:2]) or _help(names[:1])


def _is_built(checkout: Path) -> bool:
    """Whether the binary is newer than all sources; a cache may contain an older one."""
    if not SNOWMELT.exists():
        return False
    sources = (checkout / "crates").glob("*/src/**/*.rs")
    return SNOWMELT.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def test_the_binary_accepts_every_documented_command(checkout: Path) -> None:
    if not _is_built(checkout):
        pytest.skip("the binary is not built, or older than the sources: make build")
    unknown = []
    shown = _shown_commands(checkout)
    assert shown
    for place, words in shown:
        if words[:1] == ["--version"]:
            continue
        # The arguments after `--` are for another program.
        words = words[: words.index("--")] if "--" in words else words
        text = _help_of(words)
        flags = [word.split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
        unknown += [place] if not text else []
        unknown += [
            f"{place}: {flag}"
            for flag in flags
            if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text)
        ]
    assert not unknown


def test_every_documented_make_target_exists(checkout: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (checkout / "Makefile").read_text(), re.M))
    named = {
        target
        for document in _documents(checkout)
        for target in re.findall(r"`make ([a-z0-9]+)`", document.read_text())
    }
    assert named <= targets


def test_the_glossary_has_the_terms_of_this_project_only(checkout: Path) -> None:
    """A reader learns fewer than 40 words before the code; other terms are those of the field."""
    text = (checkout / "docs/reference/glossary.md").read_text()
    terms = [term for term in re.findall(r"^\| ([^|]+?) \|", text, re.M) if term != "term"]
    terms = [term for term in terms if set(term) != {"-"}]
    assert 20 <= len(terms) < 40
    assert len(set(terms)) == len(terms)


def test_decisions_have_one_form_and_the_status_of_their_index(checkout: Path) -> None:
    folder = checkout / "docs/explanation/decisions"
    rows = re.findall(
        r"^\| \[(\d{3})\]\((\S+)\) \| (.+) \| (.+) \|$", (folder / "README.md").read_text(), re.M
    )
    listed = {name: (f"{number}: {title}", status) for number, name, title, status in rows}
    found = {}
    for file in sorted(folder.glob("[0-9]*.md")):
        text = file.read_text()
        assert re.findall("^## (.*)$", text, re.M) == ["Context", "Decision", "Consequences"], file
        title, status = re.findall(r"\A# (.*)\n\nStatus: (.*)\.\n", text)[0]
        found[file.name] = (title, status)
    assert found == listed
