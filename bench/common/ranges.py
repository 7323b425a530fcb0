"""What a query has to read of Parquet files on S3, and a client that reads only that."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from . import s3
from .paths import BENCH

# The reader fetches column chunks together if they are not further apart.
GAP = 1 << 20


@dataclass(frozen=True)
class Range:
    path: str
    offset: int
    length: int


@dataclass
class Needed:
    """What a query has to read of a table on S3."""

    ranges: list[Range] = field(default_factory=list)
    # Of the column chunks alone, without the gaps between them.
    bytes: int = 0
    files: list[str] = field(default_factory=list)


def needed(folder: Path, bucket: str, columns: list[str]) -> Needed:
    """The ranges of some columns of all files, from their footers."""
    found = Needed()
    for file in sorted(folder.iterdir()):
        path = f"{bucket}/{folder.name}/{file.name}"
        found.files.append(path)
        footer = pq.ParquetFile(file).metadata
        for group in range(footer.num_row_groups):
            row_group = footer.row_group(group)
            chunks = [row_group.column(number) for number in range(row_group.num_columns)]
            places = sorted(
                (c.dictionary_page_offset or c.data_page_offset, c.total_compressed_size)
                for c in chunks
                if c.path_in_schema in columns
            )
            found.bytes += sum(length for _, length in places)
            begin, end = places[0][0], sum(places[0])
            for offset, length in places[1:]:
                if offset - end > GAP:
                    found.ranges.append(Range(path, begin, end - begin))
                    begin = offset
                end = offset + length
            found.ranges.append(Range(path, begin, end - begin))
    return found


def read_ranges(store: s3.Store, wanted: Needed, concurrent: int) -> float:
    """Seconds in which a client that does nothing else reads all ranges of files that are open."""
    files = store.files()
    opened = {path: files.open_input_file(path) for path in wanted.files}

    def read(part: Range) -> None:
        if len(opened[part.path].read_at(part.length, part.offset)) != part.length:
            raise RuntimeError(f"{part}: fewer bytes")

    with ThreadPoolExecutor(concurrent) as pool:
        begun = time.perf_counter()
        list(pool.map(read, wanted.ranges))
        return time.perf_counter() - begun


def read_in_network(
    inside: Sequence[str],
    environment: Mapping[str, str],
    store: s3.Store,
    wanted: Needed,
    concurrent: int,
) -> float:
    """The same by a process in another network; `inside` are the words that start it there."""
    request = {"endpoint": store.endpoint, "wanted": asdict(wanted), "concurrent": concurrent}
    done = subprocess.run(
        [*inside, sys.executable, "-m", __name__],
        env=environment,
        cwd=BENCH,
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _read(request: dict[str, Any]) -> float:
    fields = request["wanted"]
    ranges = [Range(**each) for each in fields["ranges"]]
    wanted = Needed(ranges, fields["bytes"], fields["files"])
    return read_ranges(s3.Store(request["endpoint"]), wanted, request["concurrent"])


if __name__ == "__main__":
    print(_read(json.load(sys.stdin)))
