"""Options for CSV files, as they are sent to the platform."""

from __future__ import annotations

from typing import Any

import pytest

import snowmelt as sm


@pytest.mark.parametrize(
    ("name", "value", "sent"),
    [
        ("delim", ";", {"values": [";"]}),
        ("header", False, {"values": ["false"]}),
        ("skip", 2, {"values": ["2"]}),
        ("quote", None, {"values": [""]}),
        ("nullstr", ["NA", ""], {"values": ["NA", ""]}),
        ("types", {"b": "DATE", "a": "BIGINT"}, {"keys": ["b", "a"], "values": ["DATE", "BIGINT"]}),
    ],
)
def test_an_option_is_sent_as_texts(name: str, value: Any, sent: dict[str, Any]) -> None:
    query = sm.sql("select 1", csv={name: value})
    assert query.csv == [{"name": name, **sent}]


@pytest.mark.parametrize("wrong", ["x.csv", [("delim", ";")], {1: "x"}, {"skip": 1.5}, {"a": [[]]}])
def test_other_values_are_refused(wrong: Any) -> None:
    with pytest.raises(sm.Error, match="csv=") as refused:
        sm.sql("select 1", csv=wrong)
    assert refused.value.code == "SM-0110"
