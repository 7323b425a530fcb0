"""A room of sources has few entries, so that one look at it shows what it owns.

A room is a folder of a crate's sources. Files and folders with sources count; its `mod.rs` and
files of tests do not.
"""

import re
from pathlib import Path

MAX_ENTRIES = 15
ROOTS = {"mod.rs", "lib.rs", "main.rs"}
TESTS = re.compile(r"(^|_)tests?\.rs$|^tests$|^rig$|^fake\.rs$")


def _entries(room: Path) -> list[str]:
    return [
        entry.name
        for entry in room.iterdir()
        if not TESTS.search(entry.name)
        and entry.name not in ROOTS
        and (entry.suffix == ".rs" or (entry.is_dir() and any(entry.rglob("*.rs"))))
    ]


def test_no_room_is_crowded(checkout: Path) -> None:
    sources = list(checkout.glob("crates/*/src"))
    rooms = sources + [room for src in sources for room in src.rglob("*") if room.is_dir()]
    crowded = {
        str(room.relative_to(checkout)): len(entries)
        for room in rooms
        if len(entries := _entries(room)) > MAX_ENTRIES
    }
    assert rooms and not crowded, "divide it by what its entries are about"


def test_every_folder_says_what_it_owns(checkout: Path) -> None:
    """The header of a `mod.rs` begins with a sentence."""
    heads = {
        str(file.relative_to(checkout)): file.read_text().splitlines()[0]
        for file in checkout.glob("crates/*/src/**/mod.rs")
    }
    assert not [file for file, head in heads.items() if not re.match(r"//! \S", head)]
