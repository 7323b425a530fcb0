"""Documentation comments are understood alone: a doc names its subject first."""

import re
from pathlib import Path

import pytest

# Words that point to a neighbour, which a reader of one doc does not see.
LEANING = re.compile(
    r"(It|Its|They|Them|Their|These|Those|This|That|The same|The others?|Others|Of|What|Where|"
    r"Which|Such|Ones?|So|As|None|Both|All of them|Each of them|There|Then|Also|Same)\b"
)
DOC = re.compile(r"\s*//[/!] ?(.*)")

# Docs of arguments are help texts: the command prints each beside the name of its option.
HELP = "crates/snowmelt/src/args/"


def leaning(text: str) -> list[int]:
    """The lines at which docs and their sections begin that lean on a neighbour, from 1."""
    found, before = [], None
    for number, line in enumerate(text.splitlines(), 1):
        doc = DOC.match(line)
        is_first = before is None or before[1].startswith("# ")
        if doc and is_first and LEANING.match(doc[1]):
            found.append(number)
        before = doc
    return found


def test_docs_name_their_subject_first(checkout: Path) -> None:
    places = []
    for file in sorted(checkout.glob("crates/*/src/**/*.rs")):
        place = str(file.relative_to(checkout))
        if place.startswith(HELP):
            continue
        places += [f"{place}:{line}" for line in leaning(file.read_text())]
    assert not places, "a doc is read alone: begin with what it documents"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("/// The hosts of a cluster.\n/// It has two.\nfn a();\n/// Its name.\nfn b();", [4]),
        ("/// Adds a host.\n///\n/// # Errors\n/// The same as of `up`.", [4]),
        ("//! What a task reads.\n//!\n//! Invariant: none.", [1]),
        ("// The same as above.\n    /// None of the hosts.", [2]),
    ],
)
def test_a_doc_that_leans_on_its_neighbour_is_found(text: str, lines: list[int]) -> None:
    assert leaning(text) == lines


PAIR = re.compile(r"^ *let \([a-z_0-9, ]+\) = \(.*\);$", re.MULTILINE)


def test_a_let_binds_one_value(checkout: Path) -> None:
    """`let (a, b) = (x, y);` saves a line and hides which value is whose."""
    files = (file for top in ("crates", "bench") for file in (checkout / top).rglob("*.rs"))
    found = [f"{file}: {pair.strip()}" for file in files for pair in PAIR.findall(file.read_text())]
    assert not found


SIGNATURE = re.compile(r"\bfn (\w+)[^{]*?(?:\{|;$)", re.MULTILINE)
TUPLE = re.compile(r"[(,]\s*\((?:mut )?\w+(?:, (?:mut )?\w+)+\): \(")

# Functions that an iterator or a stream of tuples calls directly, as in `.map(f)`.
CALLED_WITH_TUPLES = {
    "crates/execute/src/exchange/host.rs: host_sources",
    "crates/execute/src/udf/coercion.rs: same_field",
    "crates/image/src/peer/host_source.rs: rest",
}


def tuples(text: str) -> list[str]:
    """The names of the functions that take values apart which their callers put together."""
    return [found[1] for found in SIGNATURE.finditer(text) if TUPLE.search(found[0])]


def test_parameters_are_no_tuples(checkout: Path) -> None:
    """A tuple saves a parameter and hides from callers which value is whose."""
    files = (file for top in ("crates", "bench") for file in (checkout / top).rglob("*.rs"))
    found = {
        f"{file.relative_to(checkout)}: {name}"
        for file in files
        for name in tuples(file.read_text())
    }
    assert found == CALLED_WITH_TUPLES, "give each value a parameter, or the group a struct"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("fn send(&self, (method, url): (&str, &str)) -> u16 {", ["send"]),
        ("async fn put<T: Fn(u8)>(\n    (a, mut b): ([u8; 2], T),\n) {\n", ["put"]),
        ("fn ask((a, b): (u8, u8));\nfn say(pair: (u8, u8)) {", ["ask"]),
        ("fn all() { each(|(a, b): (u8, u8)| a + b) }", []),
    ],
)
def test_a_parameter_that_is_a_tuple_is_found(text: str, names: list[str]) -> None:
    assert tuples(text) == names
