"""No Rust file is long. `too-many-lines-threshold` in clippy.toml limits functions."""

from pathlib import Path

LINES = 400
# Files that are longer, each with the lines that it may have at most.
LONGER = {
    "crates/image/src/read/cache.rs": 453,
    "crates/image/tests/it/lazy.rs": 420,
    "crates/network/src/enforcement/programs.rs": 455,
    "crates/network/tests/it/enforcement.rs": 511,
    "crates/sandbox/src/registry.rs": 425,
    "crates/sandbox/tests/it/zygote.rs": 552,
}


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def test_no_source_file_is_long(checkout: Path) -> None:
    files = (file for top in ("crates", "bench") for file in (checkout / top).rglob("*.rs"))
    lengths = {str(file.relative_to(checkout)): _lines(file) for file in files}
    long = {path: lines for path, lines in lengths.items() if lines > LONGER.get(path, LINES)}
    assert not long, "divide them: a file has one responsibility"


def test_files_that_may_be_longer_are(checkout: Path) -> None:
    short = [path for path in LONGER if _lines(checkout / path) <= LINES]
    assert not short, "remove them from the list"
