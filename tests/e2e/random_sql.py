"""Random queries by seed, for the comparison of two engines.

By hand: `python tests/e2e/random_sql.py --seed 7 --count 100 --workers 3` asks Snowmelt and DuckDB;
`--print` shows the queries only.

Every query has one right answer as a multiset of rows, and its LIMIT has a total order.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from random_expressions import TYPES, Column
from random_relations import Query, Relation, Relations
from random_windows import window

# Above this estimate, the outermost query has a LIMIT.
MAX_ANSWERED = 2000
SET_OPERATIONS = ["union", "union all", "intersect", "intersect all", "except", "except all"]
GROUPED = ["int", "str", "date", "bool", "dec"]


class Queries(Relations):
    """Queries; each instance makes one statement."""

    def statement(self) -> str:
        """The statement of the seed."""
        ctes = []
        if self.chance(0.2):
            for number in range(self.rng.randint(1, 2)):
                query = self.query(1)
                ctes.append(f"q{number} as ({query.sql})")
                self.ctes.append(query.named(f"q{number}"))
        if recursive := self.chance(0.05):
            ctes.append(self._recursive())
        query = self.query(2, outermost=True)
        words = "with recursive" if recursive else "with"
        return (f"{words} {', '.join(ctes)} " if ctes else "") + self._ordered(query)

    def query(self, depth: int, outermost: bool = False) -> Query:
        kinds = {"plain": 4, "distinct": 1, "aggregate": 4, "window": 2, "rollup": 1}
        if depth > 0:
            kinds["set"] = 2
        kind = self.weighted(kinds)
        if kind == "set":
            return self._set_operation(depth)
        if kind in ("plain", "distinct"):
            return self.plain(depth, self._types(), distinct=kind == "distinct")
        if kind == "window":
            return self._windowed(depth)
        return self.aggregate(depth, None, rollup=kind == "rollup", outermost=outermost)

    def _types(self) -> list[str]:
        return [self.pick(TYPES) for _ in range(self.rng.randint(1, 4))]

    def _ordered(self, query: Query) -> str:
        """The outermost query, perhaps with a total order and a LIMIT."""
        large = query.rows > MAX_ANSWERED
        if "approximate" in query.types or not (large or self.chance(0.5)):
            return query.sql
        return f"select * from ({query.sql}) as o {self._order(query, large or self.chance(0.5))}"

    def _order(self, query: Query, limited: bool) -> str:
        """An order by all columns, in which only equal rows are equal."""
        numbers = list(range(1, len(query.types) + 1))
        self.rng.shuffle(numbers)
        keys = [
            f"{number} {self.pick(['', 'desc', 'nulls first', 'desc nulls last'])}".strip()
            for number in numbers
        ]
        limit = f" limit {self.rng.randint(1, 60)}" if limited else ""
        offset = f" offset {self.rng.randint(0, 5)}" if limited and self.chance(0.3) else ""
        return f"order by {', '.join(keys)}{limit}{offset}"

    def plain(self, depth: int, types: list[str], distinct: bool = False) -> Query:
        """SELECT without aggregates."""
        source = self.joined(depth)
        values = [self._selected(kind, source, depth) for kind in types]
        text = f"select {'distinct ' if distinct else ''}{listed(values)} from {source.sql}"
        query = Query(text + self.where(source.columns, depth), types, source.rows)
        if depth < 2 and self.chance(0.1):
            inner = f"select * from ({query.sql}) as l {self._order(query, True)}"
            return Query(inner, types, 60)
        return query

    def _selected(self, kind: str, source: Relation, depth: int) -> str:
        if depth > 0 and self.chance(0.05):
            return self._scalar(kind, source.columns)
        return self.value(kind, source.columns)

    def where(self, scope: Sequence[Column], depth: int) -> str:
        """A WHERE clause, or nothing."""
        terms = [self.predicate(scope)] if self.chance(0.4) else []
        joint = " or " if self.chance(0.1) else " and "
        if depth > 0 and self.chance(0.35):
            terms.append(self._subquery(scope, depth))
        return f" where {joint.join(terms)}" if terms else ""

    def _subquery(self, scope: Sequence[Column], depth: int) -> str:
        """A predicate with a subquery, which may be correlated."""
        kind = self.pick([k for k in TYPES if k != "bool"])
        negated = self.pick(["", "not "])
        shape = self.weighted({"in": 3, "exists": 3, "scalar": 3})
        if shape == "in":
            query = self.plain(depth - 1, [kind]) if self.chance(0.6) else self.aggregate(0, [kind])
            text = query.sql
            if negated and self.chance(0.5):
                text = f"select * from ({text}) as n where c0 is not null"
            return f"{self.column(kind, scope) or self.literal(kind)} {negated}in ({text})"
        if shape == "exists":
            inner, condition = self._correlated(scope)
            more = f" and {self.predicate(inner.columns, 1)}" if self.chance(0.4) else ""
            other = (
                f" and {self.predicate([*inner.columns, *scope], 0)}" if self.chance(0.2) else ""
            )
            return f"{negated}exists (select 1 from {inner.sql} where {condition}{more}{other})"
        operator = self.pick(["=", "<", ">=", "<>"])
        return f"{self.value(kind, scope, 1)} {operator} {self._scalar(kind, scope)}"

    def _correlated(self, scope: Sequence[Column]) -> tuple[Relation, str]:
        """A table, and a condition that compares it with the outer query."""
        inner = self.table()
        pairs = [(a, b) for a in inner.columns for b in scope if a.type == b.type]
        if not pairs:
            return inner, "true"
        a, b = self.pick(pairs)
        return inner, f"{a.ref} = {b.ref}"

    def _scalar(self, kind: str, scope: Sequence[Column]) -> str:
        """A subquery that has one row and one column."""
        inner, condition = self._correlated(scope)
        terms = [condition] if self.chance(0.6) else []
        terms += [self.predicate(inner.columns, 1)] if self.chance(0.3) else []
        where = f" where {' and '.join(terms)}" if terms else ""
        return f"(select {self._aggregated(kind, inner.columns)} from {inner.sql}{where})"

    def _aggregated(self, kind: str, scope: Sequence[Column]) -> str:
        """An aggregate of the type."""
        if kind == "approximate":
            return f"{self.pick(['avg', 'stddev_samp', 'var_pop'])}({self.value('int', scope, 1)})"
        argument = self.value(kind, scope, 1)
        if kind == "bool":
            return f"{self.pick(['bool_and', 'bool_or'])}({argument})"
        shapes = [f"min({argument})", f"max({argument})"]
        if kind == "int":
            other = self.value(self.pick(TYPES), scope, 1)
            shapes += [f"cast(sum({argument}) as bigint)", f"count({other})", "count(*)"]
            shapes += [f"count(distinct {other})", f"cast(sum(distinct {argument}) as bigint)"]
        if kind == "dec":
            shapes.append(f"cast(sum({argument}) as decimal(12,2))")
        if kind == "dbl":
            shapes.append(f"sum({argument})")
        return self.pick(shapes)

    def _filtered(self, kind: str, scope: Sequence[Column]) -> str:
        """An aggregate, perhaps with FILTER."""
        text = self._aggregated(kind, scope)
        if self.chance(0.15) and not text.startswith("cast"):
            return f"{text} filter (where {self.predicate(scope, 1)})"
        return text

    def aggregate(
        self, depth: int, types: list[str] | None, rollup: bool = False, outermost: bool = False
    ) -> Query:
        """SELECT with aggregates; with `types`, of these types."""
        source = self.joined(depth)
        keys = self._group_keys(source, types, rollup)
        kinds = types or [*(kind for kind, _ in keys), *self._types()]
        if outermost and not types and self.chance(0.2):
            kinds.append("approximate")
        remaining, values, extra = list(keys), [], []
        for number, kind in enumerate(kinds):
            key = next((k for k in remaining if k[0] == kind), None) if types else None
            key = keys[number] if types is None and number < len(keys) else key
            if key is not None:
                remaining.remove(key)
            values.append(key[1] if key else self._filtered(kind, source.columns))
        if rollup and keys and types is None and self.chance(0.5):
            extra, kinds = [f"cast(grouping({keys[0][1]}) as bigint)"], [*kinds, "int"]
        text = f"select {listed([*values, *extra])} from {source.sql}"
        text += self.where(source.columns, depth) + self._group_by([k for _, k in keys], rollup)
        text += self._having(source.columns) if keys and self.chance(0.25) else ""
        return Query(text, kinds, min(source.rows, 300) if keys else 1)

    def _group_keys(
        self, source: Relation, types: list[str] | None, rollup: bool
    ) -> list[tuple[str, str]]:
        """Types and texts of what the query groups by, without repetition."""
        found: dict[str, str] = {}
        for _ in range(self.rng.randint(1 if rollup else 0, 2)):
            kind = self.pick(types or GROUPED)
            column = self.column(kind, source.columns)
            if column is None:
                continue
            if not rollup and self.chance(0.2):
                column = f"coalesce({column}, {self.literal(kind)})"
            found[column] = kind
        return [(kind, text) for text, kind in found.items()]

    def _group_by(self, keys: list[str], rollup: bool) -> str:
        if not keys:
            return ""
        texts = ", ".join(keys)
        if not rollup:
            return f" group by {texts}"
        sets = f"grouping sets (({texts}), ({keys[-1]}), ())"
        return f" group by {self.pick([f'rollup ({texts})', f'cube ({texts})', sets])}"

    def _having(self, scope: Sequence[Column]) -> str:
        kind = self.pick(TYPES[:6])
        other = f"{self._aggregated(kind, scope)} {self.pick(['<', '>='])} {self.literal(kind)}"
        return f" having {self.pick([f'count(*) > {self.rng.randint(0, 8)}', other])}"

    def _windowed(self, depth: int) -> Query:
        """Window functions, perhaps with a filter of their results."""
        source = self.joined(0)
        kinds = self._types()[:2]
        columns = [self.value(kind, source.columns, 1) for kind in kinds]
        functions = [window(self, source) for _ in range(self.rng.randint(1, 2))]
        if not source.keyed:
            # Two numberings of equal rows may go together in any way.
            functions = functions[:1]
        kinds += [kind for kind, _ in functions]
        text = f"select {listed([*columns, *(text for _, text in functions)])} from {source.sql}"
        text += self.where(source.columns, depth)
        if functions[-1][0] == "int" and self.chance(0.3):
            last = f"c{len(kinds) - 1} <= {self.rng.randint(1, 9)}"
            text = f"select * from ({text}) as w where {last}"
        return Query(text, kinds, source.rows)

    def _set_operation(self, depth: int) -> Query:
        types = self._types()[:2]
        sides = [self._side(depth - 1, types) for _ in range(self.weighted({2: 4, 3: 1}))]
        text = f"({sides[0].sql})"
        for side in sides[1:]:
            text = f"({text} {self.pick(SET_OPERATIONS)} ({side.sql}))"
        query = Query(f"select * from {text} as s", types, sum(side.rows for side in sides))
        return query

    def _side(self, depth: int, types: list[str]) -> Query:
        return self.aggregate(depth, types) if self.chance(0.3) else self.plain(depth, types)

    def _recursive(self) -> str:
        """A common table expression that counts, or follows keys."""
        query = Query("", ["int", "int"], 60)
        self.ctes.append(query.named("w0"))
        first = f"cast({self.rng.randint(0, 3)} as bigint)"
        start = f"select cast(id as bigint) as c0, {first} as c1 from v"
        step = f"select w0.c0 + 1, w0.c1 + 1 from w0 where w0.c1 < {self.rng.randint(2, 5)}"
        if self.chance(0.5):
            source = "w0 join v on v.id = w0.c0 where w0.c1 < 4"
            step = f"select cast(v.k as bigint), w0.c1 + 1 from {source}"
        return f"w0 as ({start} union all {step})"


def listed(values: Sequence[str]) -> str:
    return ", ".join(f"{value} as c{number}" for number, value in enumerate(values))


def random_query(seed: int) -> str:
    """The query of a seed, always the same."""
    return Queries(seed).statement()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--print", action="store_true", help="print the queries only")
    given = parser.parse_args()
    queries = {str(n): random_query(n) for n in range(given.seed, given.seed + given.count)}
    if given.print:
        print(*(f"-- seed {seed}\n{sql};" for seed, sql in queries.items()), sep="\n")
        return 0
    return _compare(queries, given.workers)


def _compare(queries: dict[str, str], workers: int) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
    from random_tables import write_tables
    from reference import Reference
    from suites import failures, report, warm_server, wrong

    with tempfile.TemporaryDirectory(prefix="sm-") as name, warm_server(Path(name)):
        tables = write_tables(Path(name) / "tables")
        reference = Reference(tables)
        found = failures(queries, lambda sql: wrong(sql, tables, workers, reference))
    print(report(found, queries, workers) if found else f"{len(queries)} answers are right")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
