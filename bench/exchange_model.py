"""The requests of exchanges by objects, from the Lambada paper and not from the product.

`table_2` is the paper's Table 2. `simulated` follows its Algorithm 2 for any number of workers: it
sends a row of each worker to each partition, level by level, and counts who sends to whom.
"""

from dataclasses import dataclass

LEVELS = (1, 2, 3)

# The paper's prices (4.3.1, 4.4.4): a million reads, a million writes, and a second of a worker of
# 2 GiB, in dollars. A worker of the paper moves so many bytes in a second.
MILLION_READS, MILLION_WRITES, WORKER_SECOND = 0.4, 5.0, 3.3e-5
WORKER_BYTES = 85 * 2**20


@dataclass(frozen=True)
class Way:
    """One of the six algorithms of the paper's Figure 9."""

    levels: int
    combining: bool

    @property
    def name(self) -> str:
        """The paper's name: `2l-wc`."""
        return f"{self.levels}l{'-wc' if self.combining else ''}"


WAYS = [Way(levels, combining) for levels in LEVELS for combining in (False, True)]


@dataclass(frozen=True)
class Requests:
    """Of one exchange."""

    reads: float
    writes: float

    @property
    def total(self) -> float:
        return self.reads + self.writes

    @property
    def dollars(self) -> float:
        return (self.reads * MILLION_READS + self.writes * MILLION_WRITES) / 1e6


def table_2(way: Way, workers: int) -> Requests:
    """Right for the numbers that are a power of the levels; between them the paper's curve."""
    reads = way.levels * workers * workers ** (1 / way.levels)
    return Requests(reads, way.levels * workers if way.combining else reads)


def _side(cells: int, dimensions: int) -> int:
    side = 1
    while side**dimensions < cells:
        side += 1
    return side


def simulated(way: Way, workers: int) -> Requests:
    """Exact for any number: on a grid with cells that are no worker's own, worker `w` also runs the
    cells `w + workers`, `w + 2 * workers` and so on, and writes for all of its cells together."""
    side = _side(workers, way.levels)
    # Where the rows of each partition are, by the cells that have some of them.
    holders = {partition: set(range(workers)) for partition in range(workers)}
    reads, scans = 0, 0
    for power in reversed(range(way.levels)):
        unit = side**power
        if unit > 1 and unit >= workers:
            # One cell would have all rows of a worker: nothing is exchanged at this level.
            continue
        sent: set[tuple[int, int]] = set()
        for partition, cells in holders.items():
            to = {cell: partition // unit * unit + cell % unit for cell in cells}
            sent |= {(cell % workers, target) for cell, target in to.items()}
            holders[partition] = set(to.values())
        reads += len(sent)
        scans += 1
    return Requests(reads, scans * workers if way.combining else reads)


def worker_dollars(workers: int, scans: int, bytes_each: float) -> float:
    """What the workers cost while they move so many bytes in each scan."""
    return workers * scans * bytes_each / WORKER_BYTES * WORKER_SECOND
