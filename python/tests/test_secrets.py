"""Secrets of functions: who has the values, and where they are not shown."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from peer import Instance, Refused, run_program

import snowmelt as sm

VALUE = "hunter2-and-more"
LINES = "-----BEGIN-----\nabcdefgh\n-----END-----"

USES = """
    import os
    import snowmelt as sm

    at_import = sm.secret("KEY")

    @sm.udf
    def known(n: int) -> bool:
        return sm.secret("KEY") == at_import and at_import not in str(dict(os.environ))

    @sm.udf
    def fails(s: str) -> int:
        try:
            raise ValueError("inner " + sm.secret("KEY"))
        except ValueError as error:
            raise RuntimeError("outer " + sm.secret("KEY") * 200) from error

    @sm.udf
    def lines(n: int) -> int:
        raise RuntimeError(sm.secret("PEM"))

    @sm.udf
    def returns(n: int) -> int:
        return sm.secret("KEY")

    @sm.udf
    def other(n: int) -> str:
        return sm.secret("OTHER")
"""

DECLARES = """
    import snowmelt as sm

    @sm.udf(secrets={"KEY": "env:KEY", "OTHER": "file:OTHER"})
    def f(n: int) -> int:
        return n
"""


@pytest.fixture
def keyed(tmp_path: Path) -> Any:
    values = json.dumps({"KEY": VALUE, "PEM": LINES})
    started = Instance(tmp_path, SNOWMELT_SECRET_VALUES=values)
    yield started
    started.stop()


def test_an_instance_has_values_outside_of_its_environment(keyed: Instance) -> None:
    code = keyed.source(USES)
    numbers = pa.record_batch({"n": [1]})
    assert keyed.udf(code, "known", numbers).to_pylist() == [True]
    with pytest.raises(Refused, match="the function has no secret OTHER"):
        keyed.udf(code, "other", numbers)
    with pytest.raises(Refused, match="it declares the secret OTHER"):
        keyed.open("describe", keyed.source(DECLARES))


def test_failures_do_not_have_values(keyed: Instance) -> None:
    code = keyed.source(USES)
    texts = pa.record_batch({"s": [f"an input with {VALUE}"]})
    with pytest.raises(Refused) as refused:
        keyed.udf(code, "fails", texts)
    failure = refused.value.failure
    assert VALUE not in json.dumps(failure)
    # A value that would be cut off leaves no part of it.
    assert "hunter" not in json.dumps(failure)
    assert failure["traceback"][-1] == "caused by ValueError: inner ***"
    assert failure["input"] == "s = 'an input with ***'"
    numbers = pa.record_batch({"n": [1]})
    for function in ("lines", "returns"):
        with pytest.raises(Refused) as refused:
            keyed.udf(code, function, numbers)
        said = json.dumps(refused.value.failure)
        assert not any(line in said for line in (VALUE, "abcdefgh", "BEGIN")), said


def test_an_instance_without_secrets_says_so(own_instance: Instance) -> None:
    text = "import snowmelt as sm\ndef handler(event):\n    return sm.secret('KEY')\n"
    with pytest.raises(Refused, match="the function has no secret KEY"):
        own_instance.call(own_instance.source(text), None)


def test_outside_of_the_platform_a_variable_is_the_secret() -> None:
    program = """
import snowmelt as sm

@sm.udf(secrets={"KEY": "env:THE_KEY", "OTHER": "file:NAME"})
def f(n: int) -> str:
    return sm.secret("KEY")

print(f(1))
for name in ("OTHER", "NONE"):
    try:
        sm.secret(name)
    except sm.Error as error:
        print(error.code, error.hint)
"""
    out = run_program(program, THE_KEY=VALUE).splitlines()
    assert out[0] == VALUE
    assert out[1].startswith("SM-0231 outside of the platform")
    assert out[2].startswith("SM-0231 name where the server finds it")


def test_a_value_instead_of_a_reference_is_refused_and_not_repeated() -> None:
    wrong: Any
    for wrong in ({"KEY": VALUE}, [VALUE], {"KEY": None}):
        with pytest.raises(TypeError) as refused:
            sm.udf(secrets=wrong)
        assert VALUE not in str(refused.value)
