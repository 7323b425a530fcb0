//! Hints what to write instead of a function that other databases have.

/// Functions that are missing, each with a hint what to use instead. Sorted by name.
const INSTEAD: [(&str, &str); 37] = [
    (
        "approx_quantile",
        "it takes a column of numbers, and a number between 0 and 1 or a list of such numbers",
    ),
    ("arg_max", "it takes two or three arguments, and no OVER"),
    ("arg_min", "it takes two or three arguments, and no OVER"),
    (
        "array",
        "ARRAY(SELECT …) has one column; with DISTINCT it is sorted by that column. ARRAY[…] is a list of values",
    ),
    (
        "columns",
        "it finds no column, or takes something else: COLUMNS('regex'), COLUMNS(* LIKE 'a%'), \
         COLUMNS(* EXCLUDE (k)) or COLUMNS(['a', 'b'])",
    ),
    (
        "date_diff",
        "its first argument is a unit from 'microsecond' and 'second' to 'week', 'quarter' and 'year'",
    ),
    (
        "date_sub",
        "its first argument is a unit from 'microsecond' to 'week'; for others use date_diff(unit, from, to)",
    ),
    ("entropy", "it takes one argument"),
    ("favg", "use avg(x)"),
    (
        "fill",
        "last_value(x) IGNORE NULLS OVER (ORDER BY k) is the value before, and \
         first_value(x) IGNORE NULLS OVER (ORDER BY k ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) \
         the next one",
    ),
    ("from_unixtime", "use to_timestamp(seconds)"),
    ("fsum", "use sum(x)"),
    ("generate_subscripts", "use generate_series(1, len(list))"),
    ("hash", "use md5(x) or sha256(x)"),
    ("if", "it takes a condition and two values; use CASE otherwise"),
    ("json_group_object", JSON),
    ("json_object_agg", JSON),
    ("json_structure", JSON),
    ("json_transform", JSON),
    ("jsonb_set", JSON),
    ("kahan_sum", "use sum(x)"),
    ("list_aggregate", "use unnest(list) in a subquery, and the aggregate above it"),
    ("localtimestamp", "use now()"),
    ("mode", "it takes one argument, without ORDER BY"),
    ("pg_typeof", "use typeof(x)"),
    ("quantile_disc", "it takes a column and a number, without ORDER BY"),
    ("regexp_split_to_table", "it takes a text and a pattern, without flags"),
    ("setseed", "write the numbers into a file: random() has no seed"),
    (
        "strftime",
        "its format is in quotes, of parts such as %Y-%m-%d %H:%M:%S.%f; to_char takes others",
    ),
    (
        "strptime",
        "its format is in quotes, of parts such as %Y-%m-%d %H:%M:%S.%f; to_timestamp takes others",
    ),
    ("struct_insert", "its further arguments have names: struct_insert(s, a := 1)"),
    ("sum_kahan", "use sum(x)"),
    ("sumkahan", "use sum(x)"),
    ("sysdate", "use now()"),
    (
        "time_bucket",
        "it takes an interval in quotes, of months or of days and parts of them, and a time, and perhaps an \
         offset or the time at which intervals begin",
    ),
    ("try", "use try_cast(x AS type), or nullif(divisor, 0)"),
    ("try_strptime", "use strptime where a CASE or WHERE leaves out other texts"),
];

const JSON: &str = "there are json_extract (->), json_extract_string (->>), json_keys and to_json; for others \
                    write a function of your own (@sm.udf)";

/// Parts of the parser's messages about clauses of other databases, with a hint what to write
/// instead.
const CLAUSES: [(&str, &str); 8] = [
    (
        "found: EXCLUDE",
        "EXCLUDE ends the frame of a window that is written behind OVER, and not in WINDOW: \
         OVER (ORDER BY k ROWS … EXCLUDE CURRENT ROW)",
    ),
    (
        "PIVOT needs the values",
        "the columns of an answer are known before a query runs: take the values from SELECT DISTINCT c",
    ),
    ("found: USING", "a sample of several tables is one of a subquery: FROM (…) USING SAMPLE 10%"),
    ("no percentage", "use QUALIFY row_number() OVER (ORDER BY …) <= 0.2 * count(*) OVER ()"),
    (
        "POSITIONAL JOIN",
        "rows have no places: number those of both tables with row_number() OVER (ORDER BY …), and \
         join by the numbers",
    ),
    (
        "PIVOT and UNPIVOT with ON",
        "inside of a query write FROM t PIVOT (sum(x) FOR c IN ('a', 'b')), or FROM t UNPIVOT (…)",
    ),
    (
        "SUMMARIZE and DESCRIBE are",
        "run them alone; in a query write aggregates, such as min(COLUMNS(*))",
    ),
    ("found: PIVOT", "inside of a query write FROM t PIVOT (sum(x) FOR c IN ('a', 'b'))"),
];

/// The hint for a text that the parser does not take.
pub(crate) fn of_wrong_text(message: &str) -> Option<&'static str> {
    let message = message.to_lowercase();
    let found = CLAUSES.iter().find(|(part, _)| message.contains(&part.to_lowercase()));
    found.map(|(_, hint)| *hint)
}

/// The hint for an unknown function, of which `near` names similar ones.
pub(crate) fn of_unknown_function(name: &str, near: Option<String>) -> String {
    let name = name.to_lowercase();
    if let Some((_, instead)) = INSTEAD.iter().find(|(known, _)| *known == name) {
        return (*instead).to_owned();
    }
    let own = "a UDF is defined with @sm.udf and passed with --udf";
    match near {
        Some(near) => format!("{near} {own}"),
        None => own.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_other_databases_has_a_hint() {
        assert!(INSTEAD.is_sorted());
        assert_eq!(of_unknown_function("PG_TypeOf", Some("x".to_owned())), "use typeof(x)");
        let other = of_unknown_function("sume", Some("did you mean `sum`?".to_owned()));
        assert!(other.contains("`sum`") && other.contains("@sm.udf"), "{other}");
        assert!(of_unknown_function("country", None).contains("--udf"));
    }
}
