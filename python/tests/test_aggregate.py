"""Aggregate functions: what is refused when a class is decorated, and states in a real instance."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer import Instance, Refused, answer

import snowmelt as sm
from snowmelt._runtime import frames

HEAD = "import snowmelt as sm\n"

SPREAD = """
@sm.aggregate({options})
class spread:
    def __init__(self):
        self.low, self.high, self.rows = None, None, 0
    def update(self, value, weight):
        {read}
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        self.rows += rows
    def merge(self, other):
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.rows += other.rows
    def finish(self):
        return None if self.low is None else (self.high - self.low) + 1000.0 * self.rows
"""

ONE = "low = high = float(value) * weight; rows = 1"
MANY = "part = value * weight; low, high, rows = float(part.min()), float(part.max()), len(part)"
ARROW = """import pyarrow.compute as pc
        part = pc.multiply(value, weight)
        low, high, rows = pc.min(part).as_py(), pc.max(part).as_py(), len(part)"""

FORMS = {"scalar": ONE, "numpy": MANY, "pandas": MANY, "arrow": ARROW}

ROWS = pa.schema(
    [("value", pa.float64()), ("weight", pa.int64()), pa.field("", pa.uint64(), False)]
)
STATES = pa.schema([("state", pa.large_binary()), pa.field("", pa.uint64(), False)])


def _spread(form: str) -> str:
    return HEAD + SPREAD.format(
        options=f"batch={form!r}, args=[float, int], returns=float | None",
        read=FORMS[form],
    )


class Groups:
    """An open connection to an aggregate function."""

    def __init__(self, instance: Instance, code: str, name: str, rows: pa.Schema = ROWS) -> None:
        self._connection = instance.open("aggregate", code, name)
        self._rows = rows
        self._connection.send(frames.SCHEMA, rows.serialize())
        result = pa.schema([pa.field("return", pa.float64())])
        self._connection.send(frames.SCHEMA, result.serialize())

    def _call(self, step: str, groups: int, **more: Any) -> None:
        call = {"step": step, "accumulator": 0, "groups": groups, "take": 0, "forget": [], **more}
        self._connection.send_json(frames.AGGREGATE, call)

    def update(self, groups: int, rows: list[tuple[Any, ...]], **more: Any) -> int:
        columns = [pa.array(c, f.type) for c, f in zip(zip(*rows), self._rows)]
        return self._add("update", groups, pa.record_batch(columns, schema=self._rows), more)

    def merge(self, groups: int, states: list[bytes | None], of: list[int], **more: Any) -> int:
        columns = [pa.array(states, pa.large_binary()), pa.array(of, pa.uint64())]
        return self._add("merge", groups, pa.record_batch(columns, schema=STATES), more)

    def _add(self, step: str, groups: int, batch: pa.RecordBatch, more: dict[str, Any]) -> int:
        self._call(step, groups, **more)
        self._connection.send(frames.BATCH, batch.serialize())
        return int(json.loads(answer(self._connection, frames.AGGREGATE))["bytes"])

    def take(self, step: str, groups: int, take: int, **more: Any) -> list[Any]:
        self._call(step, groups, take=take, **more)
        schema = pa.ipc.read_schema(pa.py_buffer(answer(self._connection, frames.SCHEMA)))
        payload = answer(self._connection, frames.BATCH)
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
        batch.validate(full=True)
        return list(batch.column(0).to_pylist())


def _expected(rows: list[tuple[Any, ...]], groups: int) -> list[float | None]:
    found: list[float | None] = []
    for group in range(groups):
        values = [v * w for v, w, g in rows if g == group and v is not None and w is not None]
        found.append(max(values) - min(values) + 1000.0 * len(values) if values else None)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_partial_states_of_two_workers_give_the_result_of_all_rows(
    instance: Instance, form: str
) -> None:
    random.seed(form)
    values, weights = [None, *(n / 4 for n in range(-40, 40))], [None, 1, 2, 3]

    def row() -> tuple[Any, ...]:
        return random.choice(values), random.choice(weights), random.randrange(9)

    parts = [[row() for _ in range(400)] for _ in range(2)]
    code = instance.source(_spread(form))
    workers = [Groups(instance, code, "spread") for _ in parts]
    for worker, rows in zip(workers, parts):
        assert worker.update(10, rows[:150]) >= 0
        worker.update(10, rows[150:])
    states = [worker.take("state", 10, 10) for worker in workers]
    # No row has the last group.
    assert [state[9] for state in states] == [None, None]
    last = Groups(instance, code, "spread")
    last.merge(10, [*states[0], *states[1]], [*range(10), *range(10)])
    assert last.take("finish", 10, 10) == _expected([*parts[0], *parts[1]], 10)


def test_groups_are_taken_from_the_first_on_and_accumulators_are_apart(instance: Instance) -> None:
    groups = Groups(instance, instance.source(_spread("scalar")), "spread")
    groups.update(5, [(float(g), 1, g) for g in range(5)])
    groups.update(1, [(7.0, 1, 0), (9.0, 1, 0)], accumulator=1)
    assert len(groups.take("state", 5, 2)) == 2
    # What was group 2 is group 0 now.
    groups.update(3, [(10.0, 1, 0)])
    assert groups.take("finish", 3, 1) == [2008.0]
    assert groups.take("finish", 1, 1, accumulator=1) == [2002.0]
    assert groups.take("finish", 2, 2, forget=[0]) == [None, None]


def test_a_state_that_is_large_is_taken_alone(instance: Instance) -> None:
    code = HEAD + (
        "@sm.aggregate\nclass joined:\n"
        "    def __init__(self): self.parts = []\n"
        "    def update(self, n: float, w: int): self.parts.append('x' * int(n))\n"
        "    def merge(self, other): self.parts += other.parts\n"
        "    def finish(self) -> float: return float(sum(map(len, self.parts)))\n"
    )
    groups = Groups(instance, instance.source(code), "joined")
    megabytes = float(9 << 20)
    assert groups.update(3, [(megabytes, 1, g) for g in range(3)]) > 20 << 20
    first = groups.take("state", 3, 3)
    assert len(first) == 1 and len(first[0]) > megabytes
    assert len(groups.take("state", 2, 2)) == 1
    groups.merge(1, first, [0])
    assert groups.take("finish", 1, 1) == [megabytes * 2]


def _code(update: str = "self.n += n", more: str = "", finish: str = "return self.n") -> str:
    return HEAD + (
        "@sm.aggregate\nclass f:\n"
        "    def __init__(self): self.n = 0.0\n"
        f"    def update(self, n: float, w: int | None):\n        {update}\n"
        "    def merge(self, other):\n        self.n += other.n\n"
        f"    def finish(self) -> float:\n        {finish}\n"
        f"{more}"
    )


def _refused(call: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.failure


def test_failures_name_the_line_and_the_input(instance: Instance) -> None:
    def failure(code: str, run: Any) -> dict[str, Any]:
        groups = Groups(instance, instance.source(code), "f")
        return _refused(lambda: run(groups))

    rows = [(1.0, 1, 0), (None, 1, 0), (0.0, None, 0)]
    found = failure(_code("self.n += 1 / n"), lambda groups: groups.update(1, rows))
    assert found["kind"] == "raised" and found["exception"].startswith("ZeroDivisionError")
    assert found["location"] == {"file": "udfs.py", "line": 6, "within": "update()"}
    assert (found["row"], found["input"]) == (2, "n = 0.0, w = None")
    found = failure(_code(finish="return {}['x']"), lambda groups: groups.take("finish", 1, 1))
    assert found["exception"] == "KeyError: 'x'" and found["location"]["within"] == "finish()"
    found = failure(_code(finish="return None"), lambda groups: groups.take("finish", 1, 1))
    assert found["kind"] == "type" and "got None" in found["exception"] and "row" not in found
    found = failure(_code("return 1"), lambda groups: groups.update(1, rows))
    assert found["kind"] == "type" and found["exception"] == "update() returned int"
    locked = _code("import threading; self.lock = threading.Lock()")

    def state(groups: Groups) -> None:
        groups.update(1, rows)
        groups.take("state", 1, 1)

    found = failure(locked, state)
    assert found["kind"] == "type" and "cannot be sent to another worker" in found["exception"]
    assert "from_state" in found["hint"]


def test_a_failure_in_a_batch_shows_the_rows_of_the_group(instance: Instance) -> None:
    code = _spread("numpy").replace("part = value", "assert value[0] < 5, 'big'; part = value")
    groups = Groups(instance, instance.source(code), "spread")
    found = _refused(lambda: groups.update(2, [(1.0, 1, 0), (9.0, 2, 1), (1.0, 3, 0)]))
    assert found["exception"] == "AssertionError: big"
    assert found["input"] == "value = [9.0], weight = [2] (the first of 1 rows of a group)"


def test_states_may_be_bytes_of_their_own_and_classes_of_the_user(instance: Instance) -> None:
    own = _code(
        more="    def state(self): return str(self.n).encode()\n"
        "    @classmethod\n    def from_state(cls, data):\n"
        "        made = cls()\n        made.n = float(data)\n        return made\n"
    )
    groups = Groups(instance, instance.source(own), "f")
    groups.update(1, [(2.5, 1, 0)])
    assert groups.take("state", 1, 1) == [b"2.5"]
    groups.merge(1, [b"1.5", b"2.0"], [0, 0])
    assert groups.take("finish", 1, 1) == [3.5]
    other = "class Part:\n    def __init__(self, n): self.n = n\n"
    kept = _code("self.part = Part(n); self.n += self.part.n").replace(HEAD, HEAD + other)
    groups = Groups(instance, instance.source(kept), "f")
    groups.update(1, [(2.5, 1, 0)])
    states = groups.take("state", 1, 1)
    groups.merge(1, states, [0])
    assert groups.take("finish", 1, 1) == [2.5]


def test_a_class_of_a_program_is_sent_by_value(instance: Instance) -> None:
    class Pair:
        def __init__(self, n: float) -> None:
            self.n = n

    @sm.aggregate
    class f:
        def __init__(self) -> None:
            self.pair = Pair(0.0)

        def update(self, n: float, w: int) -> None:
            self.pair.n += n * w

        def merge(self, other: Any) -> None:
            self.pair.n += other.pair.n

        def finish(self) -> float:
            return self.pair.n

    assert repr(f) == "<aggregate f(n: float64, w: int64) -> float64>"
    assert pickle.loads(pickle.dumps(f.signature)) == f.signature
    groups = Groups(instance, instance.pickled(f), "f")
    groups.update(1, [(2.5, 2, 0)])
    groups.merge(1, groups.take("state", 1, 1) * 2, [0, 0])
    assert groups.take("finish", 1, 1) == [10.0]
    plain = f()
    plain.update(1.5, 2)
    assert plain.finish() == 3.0


def test_the_code_describes_functions_of_rows_and_of_groups(instance: Instance) -> None:
    code = instance.source(_code() + "\n@sm.udf\ndef g(x: int) -> int:\n    return x\n")
    connection = instance.open("describe", code)
    signatures = json.loads(answer(connection, frames.RETURN))
    assert {one["name"]: one["kind"] for one in signatures} == {"f": "aggregate", "g": "scalar"}


def _with(**methods: Any) -> type:
    usual: dict[str, Any] = {
        "update": lambda self, n: None,
        "merge": lambda self, other: None,
        "finish": lambda self: 0.0,
    }
    return type("f", (), {k: v for k, v in {**usual, **methods}.items() if v is not None})


@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        ({"merge": None}, "it has no method merge()"),
        ({"update": None}, "it has no method update()"),
        ({"finish": 7}, "`finish` is not a method"),
        ({"merge": lambda self: None}, "merge() must take one argument: the other state"),
        ({"finish": lambda self, more: None}, "finish(more) must take nothing"),
        ({"__init__": lambda self, more: None}, "__init__(more) must take nothing"),
        ({"update": lambda self: None}, "update() needs an argument"),
        ({"update": lambda self, a, b: None}, "args= has 1 types for 2 parameters"),
        ({"state": lambda self: b""}, "state() and from_state(data) belong together"),
        (
            {"state": lambda self: b"", "from_state": lambda data: None},
            "from_state is not a class method",
        ),
        ({"__slots__": ("n",)}, "__slots__ are not pickled"),
    ],
)
def test_a_class_that_is_no_aggregate_is_refused(methods: dict[str, Any], reason: str) -> None:
    with pytest.raises(sm.SignatureError) as refused:
        sm.aggregate(args=[float], returns=float)(_with(**methods))
    assert reason in str(refused.value)
    assert refused.value.code == "SM-0205"
    assert Path(refused.value.report["location"]["file"]).name == "test_aggregate.py"


def test_types_and_forms_are_read_from_annotations() -> None:
    class Mean:
        def update(self, n: sm.NDArray[float], w: sm.NDArray[int | None]) -> None: ...
        def merge(self, other: Any) -> None: ...
        def finish(self) -> float | None: ...

    made = sm.aggregate(name="mean_of")(Mean)
    wire = made.signature.to_wire()
    assert (wire["name"], wire["kind"], wire["batch"]) == ("mean_of", "aggregate", "numpy")
    assert [e.nullable for _, e in made.signature.arguments] == [False, True]
    with pytest.raises(sm.SignatureError, match="has no annotation"):
        sm.aggregate(_with())
    with pytest.raises(sm.SignatureError, match="for a class, not a function"):
        sm.aggregate(lambda: None)
