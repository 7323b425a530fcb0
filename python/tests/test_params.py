"""Values of parameters, as they are sent to the platform."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

import snowmelt as sm

UTC = dt.timezone.utc
NOON = dt.datetime(2024, 1, 31, 12, 0, 0, 5)


def _typed(data_type: str, text: str) -> dict[str, str]:
    return {"type": data_type, "value": text}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (None, None),
        (pd.NaT, None),
        (True, True),
        (np.bool_(False), False),
        (-(2**63), -(2**63)),
        (np.int64(7), 7),
        (2**63, _typed("decimal", "9223372036854775808")),
        (0.1, _typed("double", "0.1")),
        (np.float32(0.5), _typed("double", "0.5")),
        (float("nan"), _typed("double", "nan")),
        (Decimal("1.50"), _typed("decimal", "1.50")),
        (Decimal("1E+3"), _typed("decimal", "1000")),
        ("it's", "it's"),
        (b"\x00\xff", _typed("blob", "00ff")),
        (dt.date(2024, 1, 31), _typed("date", "2024-01-31")),
        (dt.time(10, 0), _typed("time", "10:00:00")),
        (NOON, _typed("timestamp", "2024-01-31 12:00:00.000005")),
        (NOON.replace(tzinfo=UTC), _typed("timestamptz", "2024-01-31 12:00:00.000005+00:00")),
        (pd.Timestamp("2024-01-31"), _typed("timestamp", "2024-01-31 00:00:00")),
        (
            np.datetime64("2024-01-31T10:00", "ns"),
            _typed("timestamp", "2024-01-31 10:00:00.000000000"),
        ),
        (
            dt.timedelta(days=1, seconds=2, microseconds=3),
            _typed("interval", "1 days 2 seconds 3 microseconds 0 nanoseconds"),
        ),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([1, "a"], [1, "a"]),
    ],
)
def test_a_value_is_sent_with_its_type(value: Any, sent: Any) -> None:
    assert sm.sql("select ?", params=[value]).params == [sent]
    assert sm.sql("select :x", params={"x": value}).params == {"x": sent}


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ("abc", r"write params=\[value\]"),
        (5, "a list or a dictionary"),
        ({1: "a"}, "the name 1"),
        ([object()], "params= has a object"),
        ([{"a": 1}], "params= has a dict"),
        ([10**38], "38 digits"),
        ([Decimal("NaN")], "38 digits"),
        ([dt.time(10, 0, tzinfo=UTC)], "params= has a time"),
        ([np.array([1])], "params= has a ndarray"),
    ],
)
def test_other_values_are_refused(params: Any, part: str) -> None:
    with pytest.raises(sm.Error, match="params=") as refused:
        sm.sql("select ?", params=params)
    assert refused.value.code == "SM-0110"
    assert re.search(part, f"{refused.value} {refused.value.hint}")


def test_a_query_without_parameters_sends_none() -> None:
    query = sm.sql("select 1")
    assert query.params is None
    assert "params" not in query._request()
    assert sm.sql("select ?", params=[1])._request()["params"] == [1]


def test_a_table_may_not_be_named_like_the_option() -> None:
    with pytest.raises(sm.Error, match="a list or a dictionary"):
        sm.sql("select * from params", params=pd.DataFrame({"a": [1]}))
