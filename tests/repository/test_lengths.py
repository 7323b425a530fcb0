"""No Rust file is long. `too-many-lines-threshold` in clippy.toml limits functions."""

from pathlib import Path

LINES = 420


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def test_no_source_file_is_long(checkout: Path) -> None:
    files = (file for top in ("crates", "bench") for file in (checkout / top).rglob("*.rs"))
    lengths = {str(file.relative_to(checkout)): _lines(file) for file in files}
    long = {path: lines for path, lines in lengths.items() if lines > LINES}
    assert not long, "divide them: a file has one responsibility"
