"""Arrow tables as frames of pandas."""

import pyarrow as pa

from snowmelt import _dtypes


def test_integers_beside_a_null_in_a_list_stay_integers_in_pandas() -> None:
    large = 2**53 + 1
    lists = pa.array([[large, None], None])
    structs = pa.array([{"a": large}, {"a": None}])
    frame = _dtypes.to_pandas(pa.table({"l": lists, "s": structs, "n": [large, None]}), {})
    assert list(frame["l"][0]) == [large, None]
    assert frame["s"][0] == {"a": large}
    assert frame["n"].dtype == "Int64" and frame["n"][0] == large
