"""Random FROM clauses: tables, derived tables, common table expressions, VALUES, joins."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from random_expressions import TYPES, Column, Expressions
from random_tables import COLUMNS, TABLES

# An estimate of the rows of a FROM clause above this is not generated.
MAX_ROWS = 20_000
# The part of the rows in which two columns are equal, about; others: a quarter.
EQUAL = {"id": 0.003, "k": 0.2, "s": 0.1, "dt": 0.05, "ts": 0.03, "d": 0.01, "x": 0.03}


@dataclass(frozen=True)
class Relation:
    """Something that FROM may contain, with an alias."""

    sql: str
    columns: list[Column]
    # Columns whose values together occur once.
    unique: list[str]
    rows: float
    # Whether no two rows are equal: tables have an id.
    keyed: bool = False


@dataclass(frozen=True)
class Named:
    """A common table expression, or the text of a derived table, with its columns."""

    sql: str
    columns: list[Column]
    rows: float


@dataclass
class Query:
    """The text of a query, the types of its columns c0, c1, ... and an estimate of its rows."""

    sql: str
    types: list[str]
    rows: float = field(default=100)

    def named(self, text: str) -> Named:
        """As something to select from."""
        columns = [Column(f"c{number}", kind) for number, kind in enumerate(self.types)]
        return Named(text, columns, self.rows)


class Relations(Expressions):
    """FROM clauses. A subclass defines `query`, for derived tables."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._aliases = 0
        self.ctes: list[Named] = []

    def query(self, depth: int) -> Query:
        raise NotImplementedError

    def alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"

    def table(self) -> Relation:
        """A table with an alias."""
        name, alias = self.weighted({"t": 24, "u": 20, "v": 8, "e": 1}), self.alias()
        columns = [Column(f"{alias}.{column}", kind) for column, (kind, _) in COLUMNS.items()]
        return Relation(
            f"{name} as {alias}", columns, [f"{alias}.id"], max(TABLES[name][0], 1), True
        )

    def _from_named(self, named: Named) -> Relation:
        alias = self.alias()
        columns = [replace(column, ref=f"{alias}.{column.ref}") for column in named.columns]
        refs = [column.ref for column in columns]
        return Relation(f"{named.sql} as {alias}", columns, refs, named.rows)

    def _values(self) -> Relation:
        kinds = [self.pick(TYPES) for _ in range(self.rng.randint(1, 3))]
        count = self.rng.randint(1, 6)
        # The first row has no nulls, which decides the types.
        rows = [[self.typed_literal(kind, row == 0) for kind in kinds] for row in range(count)]
        alias, names = self.alias(), [f"c{number}" for number in range(len(kinds))]
        text = ", ".join(f"({', '.join(row)})" for row in rows)
        columns = [Column(f"{alias}.{n}", kind) for n, kind in zip(names, kinds, strict=True)]
        refs = [column.ref for column in columns]
        return Relation(f"(values {text}) as {alias}({', '.join(names)})", columns, refs, count)

    def typed_literal(self, kind: str, not_null: bool) -> str:
        while True:
            text = self.literal(kind)
            if not (not_null and "null" in text):
                return text

    def relation(self, depth: int) -> Relation:
        kinds = {"table": 12, "values": 1}
        if depth > 0:
            kinds["derived"] = 3
        if self.ctes:
            kinds["cte"] = 8
        kind = self.weighted(kinds)
        if kind == "cte":
            return self._from_named(self.pick(self.ctes))
        if kind == "derived":
            query = self.query(depth - 1)
            return self._from_named(query.named(f"({query.sql})"))
        return self.table() if kind == "table" else self._values()

    def joined(self, depth: int) -> Relation:
        """One relation, or two or three that are joined."""
        left = self.relation(depth)
        for _ in range(self.weighted({0: 4, 1: 4, 2: 2})):
            for _ in range(5):
                more = self._join(left, self.relation(depth))
                if more.rows <= MAX_ROWS:
                    left = more
                    break
        return left

    def _join(self, left: Relation, right: Relation) -> Relation:
        columns, unique = left.columns + right.columns, left.unique + right.unique
        product = left.rows * right.rows
        kind = self.weighted(
            {"join": 6, "left join": 5, "right join": 3, "full join": 3, "cross": 1}
        )
        if kind == "cross":
            text = f"{left.sql} cross join {right.sql}"
            return Relation(text, columns, unique, product, left.keyed and right.keyed)
        on, part = self._condition(left.columns, right.columns)
        rows = max(product * part, 1)
        if kind in ("left join", "full join"):
            rows += left.rows
        if kind in ("right join", "full join"):
            rows += right.rows
        text = f"{left.sql} {kind} {right.sql} on {on}"
        return Relation(text, columns, unique, rows, left.keyed and right.keyed)

    def _condition(self, left: Sequence[Column], right: Sequence[Column]) -> tuple[str, float]:
        """A join condition, and the part of the rows that it lets pass, about."""
        pairs = [(a, b) for a in left for b in right if a.type == b.type and a.type != "bool"]
        if not pairs or self.chance(0.03):
            return self.predicate([*left, *right], 1), 0.5
        named = [(a, b) for a, b in pairs if a.ref.split(".")[1] == b.ref.split(".")[1]]
        terms, part = [], 1.0
        for _ in range(self.weighted({1: 7, 2: 1})):
            a, b = self.pick(named if named and self.chance(0.7) else pairs)
            shape = self.weighted({"=": 12, "compared": 2, "distinct": 1, "computed": 1})
            if shape == "compared":
                terms.append(f"{a.ref} {self.pick(['<', '<=', '>', '<>'])} {b.ref}")
                part *= 0.5
                continue
            part *= min(EQUAL.get(column.ref.split(".")[1], 0.25) for column in (a, b))
            if shape == "=":
                terms.append(f"{a.ref} = {b.ref}")
            elif shape == "distinct":
                terms.append(f"({a.ref} is not distinct from {b.ref})")
            else:
                terms.append(f"coalesce({a.ref}, {self.literal(a.type)}) = {b.ref}")
        if self.chance(0.15):
            terms.append(self.predicate([*left, *right], 1))
        return " and ".join(terms), part
