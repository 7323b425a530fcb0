"""Small tables for random queries: nulls, duplicates, a skewed key, an empty table, many files."""

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# Types of the generator. Doubles are multiples of a quarter, so that their sums are exact in any
# order.
COLUMNS = {
    "id": ("int", pa.int32()),
    "k": ("int", pa.int32()),
    "g": ("int", pa.int64()),
    "d": ("dec", pa.decimal128(9, 2)),
    "x": ("dbl", pa.float64()),
    "s": ("str", pa.string()),
    "dt": ("date", pa.date32()),
    "ts": ("time", pa.timestamp("us")),
    "f": ("bool", pa.bool_()),
}
# Rows and files of each table.
TABLES = {"t": (300, 16), "u": (120, 5), "v": (15, 2), "e": (0, 1)}

WORDS = [
    "",
    "a",
    "b",
    "aa",
    "ab",
    "A",
    "apple",
    "Äpfel",
    "zoë",
    "x y",
    "0",
    "10",
    "9",
    "naïve",
    "%",
]


def _value(rng: random.Random, kind: str, name: str, number: int) -> Any:
    if name == "id":
        return number
    if rng.random() < 0.15:
        return None
    if name == "k":
        # Half of the rows have one key: one partition of an exchange is larger than the others.
        return 3 if rng.random() < 0.4 else rng.randint(0, 20)
    if name == "g":
        return rng.randint(-2, 3)
    return {
        "dec": lambda: Decimal(rng.randint(-500, 500)) / 100,
        "dbl": lambda: rng.randint(-40, 40) / 4,
        "str": lambda: rng.choice(WORDS),
        "date": lambda: datetime.date(2024, 1, 1) + datetime.timedelta(rng.randint(0, 60)),
        "time": lambda: (
            datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=6 * rng.randint(0, 100))
        ),
        "bool": lambda: rng.random() < 0.5,
    }[kind]()


def write_tables(folder: Path) -> dict[str, Path]:
    """Writes the tables, always the same, and returns their folders by name."""
    rng = random.Random(1)
    schema = pa.schema([(name, kind) for name, (_, kind) in COLUMNS.items()])
    for table, (count, files) in TABLES.items():
        rows = [
            {name: _value(rng, kind, name, number) for name, (kind, _) in COLUMNS.items()}
            for number in range(count)
        ]
        (folder / table).mkdir(parents=True)
        for part in range(files):
            batch = pa.Table.from_pylist(rows[part::files], schema)
            pq.write_table(batch, folder / table / f"part-{part:02}.parquet", row_group_size=5)
    return {table: folder / table for table in TABLES}
