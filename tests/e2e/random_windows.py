"""Random window functions, whose results do not depend on the order of equal rows."""

from random_expressions import TYPES
from random_relations import Relation, Relations

FRAMES = [
    "rows between unbounded preceding and current row",
    "rows between 2 preceding and 1 following",
    "rows between current row and unbounded following",
    "rows between 3 preceding and 1 preceding",
]


def window(make: Relations, source: Relation) -> tuple[str, str]:
    """A type, and a window function that has it."""
    partition = make.pick([column.ref for column in source.columns])
    parts = f"partition by {partition} " if make.chance(0.6) else ""
    key = make.pick(source.columns).ref
    direction = make.pick(["", " desc", " nulls first", " desc nulls last"])
    # A total order, or one with peers, for functions that treat peers alike.
    total = f"order by {', '.join([f'{key}{direction}', *source.unique])}"
    peers = f"order by {key}{direction}"
    kind = make.pick(TYPES)
    value = make.value(kind, source.columns, 1)
    number = make.value("int", source.columns, 1)
    frame = make.pick(FRAMES)
    shapes = [
        ("int", f"row_number() over ({parts}{total})"),
        ("int", f"ntile({make.rng.randint(1, 5)}) over ({parts}{total})"),
        ("int", f"rank() over ({parts}{peers})"),
        ("int", f"dense_rank() over ({parts}{peers})"),
        ("int", f"count({value}) over ({parts}{peers})"),
        ("int", f"count(*) over ({parts.strip()})"),
        ("int", f"cast(sum({number}) over ({parts}{peers}) as bigint)"),
        ("int", f"cast(sum({number}) over ({parts}{total} {frame}) as bigint)"),
        (kind, f"lag({value}, {make.rng.randint(1, 3)}) over ({parts}{total})"),
        (kind, f"lead({value}) over ({parts}{total})"),
        (kind, f"first_value({value}) over ({parts}{total} {frame})"),
        (kind, f"last_value({value}) over ({parts}{total} {frame})"),
    ]
    if kind != "bool":
        shapes += [
            (kind, f"max({value}) over ({parts}{total} {frame})"),
            (kind, f"min({value}) over ({parts.strip()})"),
        ]
    return make.pick(shapes)
