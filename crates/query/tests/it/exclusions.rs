//! Frames of windows that leave rows out: EXCLUDE TIES, EXCLUDE GROUP and EXCLUDE CURRENT ROW. Each
//! expected answer is DuckDB's, with nulls at PostgreSQL's places.

use crate::everyday::table;

const V: &str = "(values (1, 1, 1, 'a'), (2, 1, 2, 'b'), (3, 2, null, 'a'), (4, 2, 3, null),
    (5, 2, 4, 'c'), (6, 4, 5, 'd'), (7, null, 6, 'a'), (8, null, 1, 'b')) v(i, k, n, s)";

/// A function, its window, and the values for the rows of the table in the order of `i`.
const CASES: &[(&str, &str, &str)] = &[
    (
        "sum(n)",
        "order by k rows between 2 preceding and 1 following exclude ties",
        "1|2|3|5|9|18|15|6",
    ),
    (
        "sum(n)",
        "order by k range between 1 preceding and 1 following exclude group",
        "7|7|3|3|3|||",
    ),
    (
        "sum(n)",
        "order by k groups between 1 preceding and 1 following exclude current row",
        "9|8|15|12|11|14|6|11",
    ),
    (
        "count(*)",
        "order by k groups between 1 preceding and 1 following exclude group",
        "3|3|3|3|3|5|1|1",
    ),
    (
        "count(*)",
        "order by k range between unbounded preceding and current row exclude current row",
        "1|1|4|4|4|5|7|7",
    ),
    (
        "count(*)",
        "partition by i % 2 order by k groups between unbounded preceding and unbounded following exclude ties",
        "4|4|3|4|3|4|4|4",
    ),
    (
        "min(n)",
        "order by k groups between unbounded preceding and unbounded following exclude current row",
        "1|1|1|1|1|1|1|1",
    ),
    (
        "min(n)",
        "partition by i % 2 order by k rows between 1 following and 3 following exclude ties",
        "4|1|6|1|6|1||",
    ),
    (
        "min(n)",
        "order by k desc rows between 2 preceding and 1 following exclude group",
        "3|4|1|5|1|1||5",
    ),
    (
        "max(s)",
        "partition by i % 2 order by k rows between 2 preceding and 1 following exclude ties",
        "a|b|a|d|c|d|c|d",
    ),
    (
        "max(s)",
        "order by k range between 1 preceding and 1 following exclude group",
        "c|c|b|b|b|||",
    ),
    (
        "max(s)",
        "order by k groups between 1 preceding and 1 following exclude current row",
        "c|c|d|d|d|c|d|d",
    ),
    (
        "avg(n)",
        "order by k desc groups between 1 preceding and 1 following exclude group",
        "3.5|3.5|2.6666666666666665|2.6666666666666665|2.6666666666666665|3.5|5.0|5.0",
    ),
    (
        "avg(n)",
        "order by k range between unbounded preceding and current row exclude current row",
        "2.0|1.0|2.5|2.3333333333333335|2.0|2.5|2.6666666666666665|3.5",
    ),
    (
        "avg(n)",
        "order by k groups between unbounded preceding and unbounded following exclude ties",
        "3.3333333333333335|3.5|3.0|3.0|3.1666666666666665|3.142857142857143|3.5|2.6666666666666665",
    ),
    (
        "first_value(n)",
        "order by k groups between unbounded preceding and unbounded following exclude current row",
        "2|1|1|1|1|1|1|1",
    ),
    (
        "first_value(n)",
        "order by k rows between 1 following and 3 following exclude ties",
        "||5|5|5|6||",
    ),
    (
        "first_value(n)",
        "partition by i % 2 order by k rows between 2 preceding and 1 following exclude group",
        "|3|1|2|1|2||3",
    ),
    (
        "last_value(s)",
        "order by k rows between 2 preceding and 1 following exclude ties",
        "a|a|a||d|a|a|b",
    ),
    (
        "last_value(s)",
        "partition by i % 2 order by k range between 1 preceding and 1 following exclude group",
        "c||a|b|a|||",
    ),
    (
        "last_value(s)",
        "order by k groups between 1 preceding and 1 following exclude current row",
        "c|c|d|d|d|b|b|a",
    ),
    (
        "nth_value(n, 2)",
        "partition by i % 2 order by k groups between 1 preceding and 1 following exclude group",
        "4||6|5|6|1|4|",
    ),
    (
        "nth_value(n, 2)",
        "order by k range between unbounded preceding and current row exclude current row",
        "||2|2|2|2|2|2",
    ),
    (
        "nth_value(n, 2)",
        "order by k desc groups between unbounded preceding and unbounded following exclude ties",
        "1|1|1|1|1|1|5|5",
    ),
    (
        "first_value(n) ignore nulls",
        "order by k groups between unbounded preceding and unbounded following exclude current row",
        "2|1|1|1|1|1|1|1",
    ),
    (
        "first_value(n) ignore nulls",
        "order by k desc rows between 1 following and 3 following exclude ties",
        "||1|1|1|3|5|5",
    ),
    (
        "first_value(n) ignore nulls",
        "order by k rows between 2 preceding and 1 following exclude group",
        "||1|2|5|3|4|5",
    ),
    (
        "count(distinct s)",
        "order by k desc rows between 2 preceding and 1 following exclude ties",
        "2|2|3|1|2|3|1|2",
    ),
    (
        "count(distinct s)",
        "order by k range between 1 preceding and 1 following exclude group",
        "2|2|2|2|2|0|0|0",
    ),
    (
        "count(distinct s)",
        "partition by i % 2 order by k groups between 1 preceding and 1 following exclude current row",
        "2|0|2|2|1|1|2|1",
    ),
    (
        "sum(distinct n)",
        "order by k groups between 1 preceding and 1 following exclude group",
        "7|7|8|8|8|14|5|5",
    ),
    (
        "sum(distinct n)",
        "partition by i % 2 order by k range between unbounded preceding and current row exclude current row",
        "||5|2|1|5|5|10",
    ),
    (
        "sum(distinct n)",
        "order by k groups between unbounded preceding and unbounded following exclude ties",
        "19|21|14|17|18|21|21|15",
    ),
    (
        "sum(n) filter (where s <> 'b')",
        "partition by i % 2 order by k groups between unbounded preceding and unbounded following exclude current row",
        "10|5|11|5|7||5|5",
    ),
    (
        "sum(n) filter (where s <> 'b')",
        "order by k rows between 1 following and 3 following exclude ties",
        "|4|5|11|11|6||",
    ),
    (
        "sum(n) filter (where s <> 'b')",
        "order by k rows between 2 preceding and 1 following exclude group",
        "||1||5|10|9|5",
    ),
    (
        "bool_or(n > 4)",
        "order by k rows between 2 preceding and 1 following exclude ties",
        "false|false|false|false|true|true|true|true",
    ),
    (
        "bool_or(n > 4)",
        "order by k range between 1 preceding and 1 following exclude group",
        "false|false|false|false|false|||",
    ),
    (
        "bool_or(n > 4)",
        "order by k desc groups between 1 preceding and 1 following exclude current row",
        "false|false|true|true|true|true|true|true",
    ),
    (
        "string_agg(s, '-')",
        "order by k groups between 1 preceding and 1 following exclude group",
        "a-c|a-c|a-b-d|a-b-d|a-b-d|a-c-a-b|d|d",
    ),
    (
        "string_agg(s, '-')",
        "order by k desc range between unbounded preceding and current row exclude current row",
        "a-b-d-a-c-b|a-b-d-a-c-a|a-b-d-c|a-b-d-a-c|a-b-d-a|a-b|b|a",
    ),
    (
        "string_agg(s, '-')",
        "partition by i % 2 order by k groups between unbounded preceding and unbounded following exclude ties",
        "a-a-c-a|b-d-b|a-a-a|b-d-b|a-c-a|b-d-b|a-a-c-a|b-d-b",
    ),
    (
        "median(n)",
        "order by k desc groups between unbounded preceding and unbounded following exclude current row",
        "3.5|3.5|3.0|3.0|2.5|2.5|2.5|3.5",
    ),
    (
        "median(n)",
        "partition by i % 2 order by k rows between 1 following and 3 following exclude ties",
        "5.0|3.0|6.0|3.0|6.0|1.0||",
    ),
    (
        "median(n)",
        "order by k rows between 2 preceding and 1 following exclude group",
        "||1.5|2.0|5.0|4.0|4.5|5.0",
    ),
    (
        "last_value(n) ignore nulls",
        "partition by i % 2 order by k rows between 2 preceding and 1 following exclude ties",
        "1|3|1|5|6|1|6|1",
    ),
    (
        "last_value(n) ignore nulls",
        "order by k range between 1 preceding and 1 following exclude group",
        "4|4|2|2|2|||",
    ),
    (
        "last_value(n) ignore nulls",
        "order by k groups between 1 preceding and 1 following exclude current row",
        "4|4|5|5|5|1|1|6",
    ),
    (
        "list(n)",
        "order by k groups between unbounded preceding and unbounded following exclude current row",
        "[2, , 3, 4, 5, 6, 1]|[1, , 3, 4, 5, 6, 1]|[1, 2, 3, 4, 5, 6, 1]|[1, 2, , 4, 5, 6, 1]|[1, 2, , 3, 5, 6, 1]|[1, 2, , 3, 4, 6, 1]|[1, 2, , 3, 4, 5, 1]|[1, 2, , 3, 4, 5, 6]",
    ),
    (
        "list(n)",
        "order by k rows between 1 following and 3 following exclude ties",
        "[, 3]|[, 3, 4]|[5]|[5, 6]|[5, 6, 1]|[6, 1]||",
    ),
    (
        "list(n)",
        "partition by i % 2 order by k desc rows between 2 preceding and 1 following exclude group",
        "[, 4]|[5, 3]|[6]|[1, 5, 2]|[6, 1]|[1, 3]|[]|[5]",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_frames_that_leave_rows_out() {
    for workers in [1, 3] {
        for (function, over, expected) in CASES {
            let sql = format!("select {function} over ({over}) as r from {V} order by i");
            let rows = table(&sql, workers).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(rows.1.join("|"), *expected, "{sql}");
        }
    }
}

/// DuckDB's answers for the rows of a table in several files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_rows_of_large_partitions() {
    let over = "partition by n_regionkey order by n_nationkey % 3 groups between unbounded preceding and current row";
    let plain = format!("sum(n_nationkey) over ({over})");
    let own = "sum(n_nationkey) over (partition by n_regionkey, n_nationkey % 3)";
    for (kind, other) in [
        ("exclude group", format!("coalesce({plain} - {own}, 0)")),
        ("exclude ties", format!("{plain} - {own} + n_nationkey")),
        ("exclude current row", format!("{plain} - n_nationkey")),
    ] {
        let sql = format!(
            "select count(*), count(*) filter (where a = b) from (
                select coalesce(sum(n_nationkey) over ({over} {kind}), 0) as a, {other} as b from nation)"
        );
        assert_eq!(table(&sql, 3).await.unwrap().1, ["25|25"], "{sql}");
    }
    let (names, rows) = table(
        "select max(n_name) over (order by n_regionkey range unbounded preceding exclude ties) from nation order by n_nationkey limit 1",
        2,
    )
    .await
    .unwrap();
    assert_eq!(rows, ["ALGERIA"]);
    assert!(!names.contains("excluding") && names.starts_with("max(n_name)"), "{names}");
}

/// The average of decimals is one, as without EXCLUDE, also where it is written as two frames.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_average_has_the_type_that_it_has_without_exclude() {
    let frames = ["rows", "groups", "range"].map(|unit| {
        ["no others", "current row", "group", "ties"].map(|kind| {
            format!("order by k {unit} between unbounded preceding and current row exclude {kind}")
        })
    });
    for (value, data_type) in [
        ("n::decimal(5, 2)", "DECIMAL(9, 6)"),
        ("n::decimal(38, 30)", "DECIMAL(38, 34)"),
        ("n", "DOUBLE"),
        ("n::real", "DOUBLE"),
    ] {
        for over in frames.iter().flatten() {
            let sql = format!("select distinct typeof(avg({value}) over ({over})) from {V}");
            assert_eq!(table(&sql, 2).await.unwrap().1, [data_type], "{sql}");
        }
    }
    let whole = "rows between unbounded preceding and unbounded following";
    for (over, expected) in [
        (
            format!("order by i {whole} exclude current row"),
            "3.500000|3.333333|3.142857|3.166667|3.000000|2.833333|2.666667|3.500000",
        ),
        (format!("partition by i {whole} exclude current row"), "|||||||"),
        (
            "order by k groups between 1 preceding and current row exclude group".to_owned(),
            "||1.500000|1.500000|1.500000|3.500000|5.000000|5.000000",
        ),
    ] {
        let sql = format!("select avg(n::decimal(5, 2)) over ({over}) as r from {V} order by i");
        assert_eq!(table(&sql, 2).await.unwrap().1.join("|"), expected, "{sql}");
    }
}
