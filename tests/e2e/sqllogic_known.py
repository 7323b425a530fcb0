"""Records of DataFusion's SQL logic tests that Snowmelt answers in another way, with the reasons.

The places are those of the version in `sqllogic.VERSION`. The groups are explained
in docs/reference/sqllogictest.md.
"""

FILES = {
    "slt_features.slt": "tests placeholders of DataFusion's own runner",
    "functional_dependencies.slt": "tests constraints, which Parquet files do not have",
    "pwmj.slt": "its expected order is that of a join that is off by default, not of its ORDER BY",
}
FOLDERS = {"spark": "functions for Spark, which are a crate of their own"}

_NOT_IN = "DataFusion ignores nulls of NOT IN below OR"
_TIME = "Parquet has no times in seconds"
_ELEMENT = "DataFusion's array functions refuse lists whose element field Parquet has named"
_SUBQUERY = "a scalar subquery in ON is refused"
_NESTED_DICTIONARY = "Arrow IPC cannot encode a dictionary of dictionaries"
_UUID = "the build leaves out extension types"
_CASE = "column names match in any case"
_ERROR = "whether the division by zero is evaluated depends on the rows of the batch"
_MORE = "forms that DataFusion refuses have the answers of PostgreSQL"

_PLACES = {
    _NOT_IN: ["null_aware_anti_join.slt:174"],
    _TIME: ["in_list.slt:388", "in_list.slt:406", "in_list.slt:424", "in_list.slt:442"],
    _ELEMENT: [f"array_concat.slt:{line}" for line in (325, 337, 383, 394, 401)],
    _SUBQUERY: ["subquery.slt:2123"],
    _NESTED_DICTIONARY: [f"functions.slt:{line}" for line in (525, 599, 732, 809, 831, 874)],
    _UUID: [f"cast_extension_type_metadata.slt:{line}" for line in (20, 36, 49, 66, 80, 91)],
    _CASE: ["identifiers.slt:93", "identifiers.slt:96", "identifiers.slt:99"],
    _ERROR: ["select.slt:1721", "select.slt:1724"],
    "intervals of one length are one value, so `sum(DISTINCT)` of them is refused": [
        "aggregate.slt:6642"
    ],
    "columns of subqueries are named as they are written": ["group_by.slt:1964", "select.slt:1834"],
    "the column of a series has the name of its table, as in PostgreSQL and DuckDB": [
        "sort_merge_join.slt:951",
        "table_functions.slt:271",
    ],
    "lists are sorted with nulls last": ["array_agg.slt:598"],
    "the length of a value is a number of its own": ["functions.slt:869"],
    "its memory limit does not count here": ["ordered_aggregate_spill.slt:69"],
    "Parquet has no tables without columns": ["select.slt:1176"],
    "the runner drops functions in DataFusion only": ["create_function.slt:46"],
}
_PLACES[_ELEMENT] += [f"array_repeat.slt:{line}" for line in (112, 127, 180, 211, 230)]

_PLACES[_MORE] = [
    *(f"lateral_join.slt:{line}" for line in (662, 665, 680, 684, 688, 695, 708, 715, 722, 735)),
    "aggregate.slt:8006",
    "aggregate.slt:8317",
    "aggregate.slt:8325",
    "joins.slt:4066",
    "joins.slt:4090",
    "predicates.slt:1004",
    "subquery.slt:432",
    "unnest.slt:550",
    "unnest.slt:894",
    "unnest.slt:898",
]

KNOWN = {place: reason for reason, places in _PLACES.items() for place in places}
