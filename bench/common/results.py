"""What experiments measured, as files, and the page RESULTS.md that is made from them.

Each experiment has a file of its own, so that it can be measured again without the others: a whole
run takes hours, and its parts need a quiet machine.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .figures import Promise, Section

INTRO = (
    "Written by `make bench`, or for single experiments by `python bench/run.py --keep NAME`."
    " Medians, with the lower and upper quartile in parentheses; of two or three samples the least"
    " and the greatest in brackets; a figure alone is a single sample. Trust ratios, not absolutes."
    " Each section names the day and the machine of its run: absolute figures of different machines"
    " cannot be compared."
)


@dataclass(frozen=True)
class Result:
    """One experiment that has run."""

    title: str
    date: str
    machine: str
    peers: list[str]
    text: str
    promises: list[Promise]
    # What other experiments compare theirs with.
    numbers: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, section: Section, date: str, machine: str, peers: Iterable[str]) -> "Result":
        text, promises = section.markdown(), list(section.promises)
        return cls(section.title, date, machine, list(peers), text, promises, section.numbers)

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, file: Path) -> "Result":
        fields = json.loads(file.read_text())
        return cls(**fields | {"promises": [Promise(**each) for each in fields["promises"]]})

    @classmethod
    def read_all(cls, folder: Path, names: Iterable[str]) -> "list[Result]":
        """Those of these experiments that have run, in this order."""
        files = (folder / f"{name}.json" for name in names)
        return [cls.read(file) for file in files if file.exists()]

    def markdown(self) -> str:
        """Its section, with when and where it ran below the title."""
        title, _, rest = self.text.partition("\n")
        return f"{title}\n\n*{self.date}, {self.machine}.*\n{rest}"


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    head = Section("Bars")
    rows = [
        [each.what, each.bar, each.measured, "kept" if each.kept else "**missed**"]
        for result in results
        for each in result.promises
    ]
    head.table(["what", "bar", "measured", ""], rows)
    peers = sorted({peer for result in results for peer in result.peers})
    intro = ["# Results", "", INTRO, "", f"Peers: {', '.join(peers)}.", "", head.markdown()]
    return "\n".join([*intro, *(result.markdown() for result in results)])
