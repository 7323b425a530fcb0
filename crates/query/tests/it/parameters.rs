//! Values of parameters: each has its type, and none is read as SQL.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use snowmelt_query::QuerySpec;
use snowmelt_wire::Parameters;

use crate::runner::{answer, refusal, spec};

fn with(sql: &str, params: &str) -> QuerySpec {
    let params: Parameters = serde_json::from_str(params).unwrap();
    QuerySpec { params, ..spec(sql, 2) }
}

async fn batches(sql: &str, params: &str) -> Vec<RecordBatch> {
    let answered = answer(&with(sql, params), Arc::default()).await;
    answered.unwrap_or_else(|error| panic!("{sql} with {params}: {error}")).0
}

/// The only row, with `|` between its columns.
async fn row(sql: &str, params: &str) -> String {
    let batches = batches(sql, params).await;
    let options = FormatOptions::default();
    let batch = batches.iter().find(|batch| batch.num_rows() == 1).unwrap();
    let text = |column| ArrayFormatter::try_new(column, &options).unwrap().value(0).to_string();
    batch.columns().iter().map(|column| text(column.as_ref())).collect::<Vec<_>>().join("|")
}

fn typed(data_type: &str, value: &str) -> String {
    format!(r#"{{"type": "{data_type}", "value": "{value}"}}"#)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_has_its_type() {
    for (value, data_type, shown) in [
        ("null".to_owned(), "Null", ""),
        ("true".to_owned(), "Boolean", "true"),
        ("-5".to_owned(), "Int64", "-5"),
        ("-9223372036854775808".to_owned(), "Int64", "-9223372036854775808"),
        (r#""5""#.to_owned(), "Utf8", "5"),
        (r#""it's; drop -- \"x\"""#.to_owned(), "Utf8", r#"it's; drop -- "x""#),
        (typed("double", "0.1"), "Float64", "0.1"),
        (typed("double", "5"), "Float64", "5.0"),
        (typed("double", "-1e300"), "Float64", "-1e300"),
        (typed("double", "inf"), "Float64", "inf"),
        (typed("decimal", "-001.50"), "Decimal128(5, 2)", "-1.50"),
        (
            typed("decimal", "12345678901234567890123456789012345678"),
            "Decimal128(38, 0)",
            "12345678901234567890123456789012345678",
        ),
        (typed("date", "2024-01-31"), "Date32", "2024-01-31"),
        (typed("time", "10:00:05.5"), "Time64(ns)", "10:00:05.500"),
        (typed("timestamp", "2024-01-31 10:00"), "Timestamp(ns)", "2024-01-31T10:00:00"),
        (
            typed("timestamptz", "2024-01-31T10:00:00+02:00"),
            "Timestamp(ns, \"+00:00\")",
            "2024-01-31T08:00:00Z",
        ),
        (typed("blob", "00ff"), "Binary", "00ff"),
        ("[1, 2]".to_owned(), "List(Int64)", "[1, 2]"),
    ] {
        let sql = "select arrow_typeof($1), $1";
        assert_eq!(row(sql, &format!("[{value}]")).await, format!("{data_type}|{shown}"));
    }
    let days = format!("[{}]", typed("interval", "2 days"));
    assert!(row("select date '2024-01-01' + ?", &days).await.starts_with("2024-01-03"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_are_found_by_place_or_name() {
    for (sql, params, expected) in [
        // In the order of the text, not of the syntax tree.
        ("from (select ? as a, ? as b) select a, b, ?", "[1, 2, 3]", "1|2|3"),
        ("select $2, $1, $2", r#"[1, "x"]"#, "x|1|x"),
        ("select :a, $b, ':a', :a + 1", r#"{"a": 1, "b": null}"#, "1||:a|2"),
        ("select count(*) from nation where n_name = ?", r#"["GERMANY"]"#, "1"),
        ("select count(*) from nation where n_regionkey = any(?)", "[[1, 2]]", "10"),
        ("select n_name from nation order by n_name limit ? offset ?", "[1, 2]", "BRAZIL"),
        ("select 'abc' similar to ?, 'abc' like ?", r#"["a_c", "b%"]"#, "true|false"),
        ("select count(*) from nation where n_nationkey in (?, ?)", "[1, 2]", "2"),
        ("select n_regionkey + ? x from nation where n_nationkey = ? group by 1", "[1, 0]", "1"),
        ("select double_it(?::int)", "[21]", "42"),
        ("select cast(? as int) + 1", r#"["41"]"#, "42"),
    ] {
        assert_eq!(row(sql, params).await, expected, "{sql} with {params}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_named_by_the_sql_and_not_by_values() {
    let batches = batches("select :x, :x + 1, upper(:y)", r#"{"x": 1, "y": "secret"}"#).await;
    let schema = batches[0].schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, [":x", ":x + 1", "upper(:y)"]);
}

#[tokio::test]
async fn values_and_parameters_must_agree() {
    for (sql, params, parts) in [
        ("select ?", "[]", ["SM-0101", "number 1 (?) has no value"]),
        ("select $1, $3", "[1, 2]", ["SM-0101", "$3 has no value"]),
        ("select :a", "{\"b\": 1}", ["SM-0101", ":a has no value"]),
        ("select :a", "[]", ["SM-0101", "--param"]),
        ("select $0", "[1]", ["SM-0101", "$0 has no value"]),
        ("select ?", "[1, 2]", ["SM-0110", "no parameter number 2"]),
        ("select 1", "{\"a\": 1}", ["SM-0110", "no parameter :a"]),
        ("select ?, $1", "[1]", ["SM-0101", "both ? and $1"]),
        ("select :a", "[1]", ["SM-0101", "the values have none"]),
        ("select ?", "{\"a\": 1}", ["SM-0101", "has no name"]),
        ("select n_name from nation order by ?", "[1]", ["SM-0101", "a whole key of ORDER BY"]),
        ("select count(*) from nation group by ?", "[1]", ["SM-0101", "GROUP BY"]),
        ("select date ?", "[\"2024-01-31\"]", ["SM-0101", "?"]),
        ("select ?", r#"[{"type": "bigint", "value": "x"}]"#, ["SM-0103", "whole number"]),
        ("select ?", r#"[{"type": "decimal", "value": "1e5"}]"#, ["SM-0103", "38 digits"]),
        ("select ?", r#"[{"type": "blob", "value": "abc"}]"#, ["SM-0103", "two hexadecimal"]),
        ("select ?", r#"[{"type": "date", "value": "2024-13-01"}]"#, ["SM-0103", "2024-13-01"]),
    ] {
        let report = refusal(&with(sql, params)).await;
        assert!(parts.iter().all(|part| report.contains(part)), "{sql} with {params}: {report}");
    }
}
