"""Tables of `docs/reference/udf-conformance.md`, compared and written by column."""

import os
from pathlib import Path

from common.paths import CHECKOUT

PATH = CHECKOUT / "docs/reference/udf-conformance.md"
# With this variable the tests write what they find, instead of comparing it.
WRITE = "UPDATE_UDF_CONFORMANCE"


class Table:
    """The first table below a heading."""

    def __init__(self, heading: str, path: Path = PATH) -> None:
        self._path = path
        lines = path.read_text().splitlines()
        start = next(n for n, line in enumerate(lines) if line.lstrip("#") == f" {heading}")
        self._first = next(n for n in range(start, len(lines)) if lines[n].startswith("|"))
        rest = range(self._first, len(lines))
        self._after = next((n for n in rest if not lines[n].startswith("|")), len(lines))
        self._lines = lines
        cells = [_cells(line) for line in lines[self._first : self._after]]
        self.names, self.rows = cells[0], cells[2:]

    def column(self, name: str) -> dict[str, str]:
        """Its cells, by the first cell of each row."""
        place = self.names.index(name)
        return {row[0]: row[place] for row in self.rows}

    def write(self, name: str, found: dict[str, str]) -> None:
        """Replaces a column; the table gets the rows of `found`."""
        place, known = self.names.index(name), {row[0]: row for row in self.rows}
        rows = []
        for label, cell in found.items():
            row = known.get(label) or [label] + [""] * (len(self.names) - 1)
            row[place] = cell
            rows.append(row)
        table = [self.names, ["---"] * len(self.names), *rows]
        lines = [_line(cells) for cells in table]
        lines[1] = "|" + "---|" * len(self.names)
        text = [*self._lines[: self._first], *lines, *self._lines[self._after :]]
        self._path.write_text("\n".join(text) + "\n")


def check(heading: str, column: str, found: dict[str, str]) -> None:
    """Fails if the document says something else."""
    table = Table(heading)
    if os.environ.get(WRITE):
        table.write(column, found)
        return
    documented = table.column(column)
    differences = {
        label: (documented.get(label), found.get(label))
        for label in {**documented, **found}
        if documented.get(label) != found.get(label)
    }
    assert not differences, f"{PATH.name} differs for {column} (then {WRITE}=1): {differences}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
