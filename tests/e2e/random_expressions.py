"""Random scalar expressions and predicates over columns in scope.

What is never generated, because DuckDB and DataFusion define it differently:

- division by a value that may be zero, and of decimals (a double in DuckDB, not in DataFusion);
- results near the limits of their type;
- doubles that are not a multiple of a quarter, as rounding depends on the order of a sum; NaN, -0;
- casts of doubles, decimals, dates and times to strings, and of doubles to integers;
- IS DISTINCT FROM without parentheses: in DataFusion AND and OR bind its right side more closely.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

TYPES = ["int", "dec", "dbl", "str", "date", "time", "bool"]
SQL_TYPES = {
    "int": "bigint",
    "dec": "decimal(9,2)",
    "dbl": "double",
    "str": "varchar",
    "date": "date",
    "time": "timestamp",
    "bool": "boolean",
}
COMPARISONS = ["=", "<>", "<>", "<", "<", "<=", "<=", ">", ">", ">=", ">="]


@dataclass(frozen=True)
class Column:
    """A column that an expression may use."""

    ref: str
    type: str


class Expressions:
    """Expressions whose nesting is at most a depth."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def weighted(self, options: dict[T, int]) -> T:
        return self.rng.choices(list(options), list(options.values()))[0]

    def literal(self, kind: str) -> str:
        if self.chance(0.05):
            return f"cast(null as {SQL_TYPES[kind]})"
        number = self.rng.randint
        literals: dict[str, Callable[[], str]] = {
            "int": lambda: str(number(0, 20)),
            "dec": lambda: f"cast({number(-400, 400) / 100:.2f} as decimal(9,2))",
            "dbl": lambda: f"cast({number(-40, 40) / 4} as double)",
            "str": lambda: self.pick(["''", "'a'", "'ab'", "'apple'", "'x y'", "'zoë'"]),
            "date": lambda: f"date '2024-0{number(1, 2)}-{number(10, 28)}'",
            "time": lambda: f"timestamp '2024-01-{number(10, 25)} {number(10, 23)}:00:00'",
            "bool": lambda: self.pick(["true", "false"]),
        }
        return literals[kind]()

    def column(self, kind: str, scope: Sequence[Column]) -> str | None:
        """A column of the type, if there is one."""
        found = [column.ref for column in scope if column.type == kind]
        return self.pick(found) if found else None

    def value(self, kind: str, scope: Sequence[Column], depth: int = 2) -> str:
        """An expression of the type."""
        if depth == 0 or self.chance(0.5):
            column = None if self.chance(0.1) else self.column(kind, scope)
            return column or self.literal(kind)
        general = {"case": 1, "coalesce": 1, "nullif": 1, "own": 5}
        chosen = self.weighted(general)
        if chosen == "case":
            condition = self.predicate(scope, depth - 1)
            yes, no = (self.value(kind, scope, depth - 1) for _ in range(2))
            other = f" else {no}" if self.chance(0.7) else ""
            return f"case when {condition} then {yes}{other} end"
        if chosen in ("coalesce", "nullif"):
            first, second = (self.value(kind, scope, depth - 1) for _ in range(2))
            return f"{chosen}({first}, {second})"
        return self._of_type(kind, lambda other: self.value(other, scope, depth - 1), scope, depth)

    def _of_type(
        self, kind: str, value: Callable[[str], str], scope: Sequence[Column], depth: int
    ) -> str:
        """A function or operator whose result has the type."""
        number = self.rng.randint(1, 5)
        if kind == "int":
            return self.pick(
                [
                    lambda: f"({value('int')} + {value('int')})",
                    lambda: f"({value('int')} - {value('int')})",
                    lambda: f"({value('int')} * {number})",
                    lambda: f"({value('int')} % {number})",
                    lambda: f"({value('int')} / {number})",
                    lambda: f"abs({value('int')})",
                    lambda: f"length({value('str')})",
                    lambda: f"cast(extract(month from {value('date')}) as bigint)",
                    lambda: f"cast({value('bool')} as bigint)",
                ]
            )()
        if kind == "dec":
            return self.pick(
                [
                    lambda: f"cast({value('dec')} + {value('dec')} as decimal(12,2))",
                    lambda: f"cast({value('dec')} - {value('dec')} as decimal(12,2))",
                    lambda: f"abs({value('dec')})",
                    lambda: f"cast({value('int')} as decimal(12,2))",
                ]
            )()
        if kind == "dbl":
            return self.pick(
                [
                    lambda: f"({value('dbl')} + {value('dbl')})",
                    lambda: f"({value('dbl')} * {number})",
                    lambda: f"cast({value('int')} as double)",
                    lambda: f"floor({value('dbl')})",
                ]
            )()
        if kind == "str":
            return self.pick(
                [
                    lambda: f"({value('str')} || {value('str')})",
                    lambda: f"concat({value('str')}, {value('str')})",
                    lambda: f"upper({value('str')})",
                    lambda: f"substr({value('str')}, {number}, 2)",
                    lambda: f"replace({value('str')}, 'a', 'bb')",
                    lambda: f"trim({value('str')})",
                    lambda: f"cast({value('int')} as varchar)",
                ]
            )()
        if kind == "date":
            return self.pick(
                [
                    lambda: f"cast({value('date')} + interval '{number}' day as date)",
                    lambda: f"cast(date_trunc('month', {value('date')}) as date)",
                    lambda: f"cast({value('time')} as date)",
                ]
            )()
        if kind == "time":
            return self.pick(
                [
                    lambda: f"date_trunc('day', {value('time')})",
                    lambda: f"cast({value('date')} as timestamp)",
                    lambda: f"({value('time')} + interval '{number}' hour)",
                    lambda: f"({value('date')} + interval '{number}' day)",
                ]
            )()
        return f"({self.predicate(scope, depth - 1)})"

    def predicate(self, scope: Sequence[Column], depth: int = 2) -> str:
        """A boolean expression."""
        kind = self.pick(TYPES)
        if depth > 0 and self.chance(0.35):
            left, right = (self.predicate(scope, depth - 1) for _ in range(2))
            return self.pick([f"({left} and {right})", f"({left} or {right})", f"(not {left})"])
        shapes: dict[Callable[[], str], int] = {
            lambda: f"{a()} {self.pick(COMPARISONS)} {self.literal(kind)}": 5,
            lambda: f"{a()} {self.pick(COMPARISONS)} {a()}": 2,
            lambda: f"{a()} is {self.pick(['', 'not ', 'not '])}null": 2,
            lambda: f"{a()} between {self.literal(kind)} and {self.literal(kind)}": 1,
            lambda: f"{a()} {self.pick(['', 'not '])}in ({self.literal(kind)}, {a()})": 1,
            lambda: f"({a()} is {self.pick(['', 'not '])}distinct from {a()})": 1,
            lambda: (
                f"{self.value('str', scope, depth - 1)} like '{self.pick(['a%', '%p%', '_'])}'"
            ): 1,
            lambda: f"{self.value('bool', scope, 0)}": 1,
        }
        depth = max(depth, 1)

        def a() -> str:
            return self.value(kind, scope, depth - 1)

        return self.weighted(shapes)()
