//! Functions and clauses of DuckDB and PostgreSQL that DataFusion lacks. Each expected answer is
//! DuckDB's.

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::runner::{answer, refusal, spec};

/// The names of the columns, and the rows in their order, with `|` between values.
pub async fn table(sql: &str, workers: u32) -> Result<(String, Vec<String>), String> {
    let query = spec(sql, workers);
    let answered = answer(&query, std::sync::Arc::default()).await;
    let (batches, _) = answered.map_err(|error| error.to_string())?;
    let names = batches.first().map(|batch| {
        let fields = batch.schema();
        fields.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>().join("|")
    });
    Ok((names.unwrap_or_default(), batches.iter().flat_map(rows).collect()))
}

fn rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default();
    let columns = batch.columns().iter();
    let columns: Vec<ArrayFormatter<'_>> =
        columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
    let row = |row| {
        columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(row).collect()
}

pub const TABLES: &str = "with t(k) as (values (1), (2), (3)),
    u(a, b) as (values ('x', 1), ('x', 2), ('y', 5), (null, 7), ('z', null)) ";

pub async fn check(cases: &[(&str, &[&str])]) {
    let mut wrong = Vec::new();
    for (sql, expected) in cases {
        for workers in [1, 3] {
            match table(&format!("{TABLES}{sql}"), workers).await {
                Ok((_, rows)) if rows == *expected => (),
                Ok((_, rows)) => wrong.push(format!("{sql}\n   gives {rows:?}, not {expected:?}")),
                Err(error) => wrong.push(format!("{sql}\n   fails: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A column with the name of another one gets a number, as in subqueries of DuckDB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_one_select_may_have_one_name() {
    for (sql, names, first) in [
        ("select *, k + 1 as k from t order by t.k", "k|k_1", "1|2"),
        ("select t.*, k from t order by k", "k|k_1", "1|1"),
        ("select k, * from t order by k desc", "k|k_1", "3|3"),
        ("select *, * exclude (a) from u order by b limit 1", "a|b|b_1", "x|1|1"),
        ("select 1 as a, 2 as a, 3 as a_1", "a|a_2|a_1", "1|2|3"),
        (
            "select u.*, v.*, u.a from u join u v using (b) where b < 2",
            "a|b|a_1|b_1|a_2",
            "x|1|x|1|x",
        ),
        ("select *, coalesce(a, '-') as a from u where b = 7", "a|b|a_1", "|7|-"),
        (
            "select *, row_number() over (order by b desc) as b from u where b < 2",
            "a|b|b_1",
            "x|1|1",
        ),
        ("select k, k_1 from (select *, -k as k from t) order by k", "k|k_1", "1|-1"),
        (", w as (select 1 as a, 2 as a) select * from w", "a|a_1", "1|2"),
        ("select 1 as a, 2 as a union select 1, 2", "a|a_1", "1|2"),
        ("select k, s.* from (select 1 as k, {'k': 2, 'x': 'z'} as s) q", "k|k_1|x", "1|2|z"),
        ("select q.s.* exclude (k) from (select {'k': 2, 'x': 'z'} as s) q", "x", "z"),
    ] {
        for workers in [1, 3] {
            let (found, rows) = table(&format!("{TABLES}{sql}"), workers).await.unwrap();
            assert_eq!((found.as_str(), rows[0].as_str()), (names, first), "{sql}");
        }
    }
    for sql in ["select *, -k as k from t order by k", "select a from u join u v on u.b = v.b"] {
        let error = table(&format!("{TABLES}{sql}"), 1).await.unwrap_err();
        assert!(
            error.contains("SM-0102") && error.contains("more than one table"),
            "{sql}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_that_differ_in_casts_are_different() {
    check(&[
        ("select k, k::varchar, k from t order by 1", &["1|1|1", "2|2|2", "3|3|3"]),
        ("select sum(k::int), sum(k::double), avg(k::double) from t", &["6|6.0|2.0"]),
        ("select k::int, k::varchar, count(*) from t group by k::int, k::varchar order by 1 limit 1",
            &["1|1|1"]),
        ("select sum(k::int), sum(k::double) from t order by sum(k::double) limit 1::bigint",
            &["6|6.0"]),
        ("select * from (select k, k::varchar, k, count(*), count(*) from t group by k) order by 1",
            &["1|1|1|1|1", "2|2|2|1|1", "3|3|3|1|1"]),
        ("select sum(k::int) over (order by k), sum(k::double) over (order by k) from t order by 1",
            &["1|1.0", "3|3.0", "6|6.0"]),
        ("select strpos('abc', 'c'), position('c' in 'abc')", &["3|3"]),
    ])
    .await;
    for (sql, expected) in [
        (
            "select k, k::varchar, k, sum(k::int), sum(k::double), sum(k::int) from t group by k",
            "k|k::VARCHAR|k_1|sum(k::INT)|sum(k::DOUBLE)|sum(k::INT)_1",
        ),
        ("select * from (select k, k, k::varchar from t)", "k|k_1|k::VARCHAR"),
    ] {
        let (names, _) = table(&format!("{TABLES}{sql}"), 2).await.unwrap();
        assert_eq!(names, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exists_and_in_are_values() {
    check(&[
        ("select k, exists (select 1 from u where b = k), not exists (select 1 from u where b = k)
          from t order by k", &["1|true|false", "2|true|false", "3|false|true"]),
        ("select k, exists (select 1 from u) from t order by k", &["1|true", "2|true", "3|true"]),
        ("select k, exists (select 1 from u where b > 9) e from t order by e, k limit 1", &["1|false"]),
        // A null among the values: not found is not known.
        ("select k, k in (select b from u) from t order by k", &["1|true", "2|true", "3|"]),
        ("select k, k not in (select b from u) from t order by k", &["1|false", "2|false", "3|"]),
        ("select k, k in (select b from u where b > 1) from t order by k",
            &["1|false", "2|true", "3|false"]),
        ("select b, b in (select k from t) from u order by b", &["1|true", "2|true", "5|false", "7|false", "|"]),
        ("select b, b in (select k from t where k > 9) from u order by b",
            &["1|false", "2|false", "5|false", "7|false", "|false"]),
        ("select k, k in (select b from u where a = 'x' and b = k) from t order by k",
            &["1|true", "2|true", "3|false"]),
        ("select case when k in (select b from u) then 'y' else 'n' end from t order by k",
            &["y", "y", "n"]),
        ("select k + (exists (select 1 from u where b = k))::int from t order by k", &["2", "3", "3"]),
        ("select count(*) filter (where k in (select b from u)),
                 count(*) filter (where exists (select 1 from u where b = k)),
                 sum(case when not exists (select 1 from u where b = k) then k end) from t",
            &["2|2|3"]),
        ("select k in (select b from u where b > 1) as found, count(*) from t group by 1 order by 1",
            &["false|2", "true|1"]),
        ("select k from t order by (select max(b) from u) - k", &["3", "2", "1"]),
        ("select k from t order by exists (select 1 from u where b = k), k", &["3", "1", "2"]),
        ("select k, sum((select count(*) from u where b = k)) over (order by k) from t order by k",
            &["1|1", "2|2", "3|2"]),
        ("select sum((select count(*) from u where b = k)), max(k + (select min(b) from u)) from t",
            &["2|4"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clauses_of_duckdb() {
    check(&[
        ("select a, b from u order by all", &["x|1", "x|2", "y|5", "z|", "|7"]),
        ("select a, count(*) from u group by all order by all", &["x|2", "y|1", "z|1", "|1"]),
        ("select a, b + 1 as c from u order by all desc limit 2", &["|8", "z|"]),
        ("select * from t order by all", &["1", "2", "3"]),
        ("select k from t union all select b from u order by all limit 2", &["1", "1"]),
        ("select k from t order by k fetch first 2 rows only", &["1", "2"]),
        ("select k from t order by k offset 1 row fetch next row only", &["2"]),
        ("select 2 ** 10, 2 * 3 ** 2", &["1024.0|18.0"]),
        ("select [1, 2, 3][:2], [1, 2, 3][2:], [1, 2, 3][2:2]", &["[1, 2]|[2, 3]|[2]"]),
        ("select 5::hugeint", &["5"]),
        ("select k + 1 as x, x * 2 as y, y + x from t order by x", &["2|4|6", "3|6|9", "4|8|12"]),
        ("select k + 1 as x from t where x > 2 order by 1", &["3", "4"]),
        ("select sum(k) as s, s * 2 from t", &["6|12"]),
        // A column has precedence, and a subquery its own names.
        ("select k + 1 as k, k * 2 from t order by 1", &["2|2", "3|4", "4|6"]),
        ("select b * 2 as x, (select max(x) from (values (100)) v(x)) as m, x from u where b = 5",
            &["10|100|10"]),
    ])
    .await;
    for (sql, part) in [
        ("select k from t fetch first 2 rows with ties", "QUALIFY"),
        ("select k from t limit 1 fetch first 2 rows only", "both LIMIT and FETCH"),
        ("select random() as x, x from t", "no column `x`"),
        ("select x, k + 1 as x from t", "no column `x`"),
    ] {
        let report = refusal(&spec(&format!("{TABLES}{sql}"), 1)).await;
        assert!(report.contains(part), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_may_be_first_with_a_condition() {
    for (sql, expected) in [
        ("from nation where n_nationkey < 2", 2),
        ("from nation n where n_nationkey > 1 order by n_name limit 3 offset 1", 3),
        ("from nation", 25),
        ("from nation order by n_name limit 4", 4),
        ("from nation select n_name where n_nationkey < 5", 5),
    ] {
        let (_, rows) = table(sql, 2).await.unwrap();
        assert_eq!(rows.len(), expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summarize_has_a_row_for_each_column() {
    let sql = "summarize select * from (values (1, 'b', null), (2, 'a', [1]), (4, null, [2]), (5, 'b', [3])) v(n, s, l)";
    for workers in [1, 3] {
        let (names, rows) = table(sql, workers).await.unwrap();
        assert_eq!(
            names,
            "column_name|column_type|min|max|approx_unique|avg|std|q25|q50|q75|count|null_percentage"
        );
        let rows: Vec<Vec<&str>> = rows.iter().map(|row| row.split('|').collect()).collect();
        let others = |row: &[&str]| [&row[..7], &row[10..]].concat().join("|");
        let shown: Vec<String> = rows.iter().map(|row| others(row)).collect();
        assert_eq!(
            shown,
            [
                "n|BIGINT|1|5|4|3.0|1.8257418583505538|4|0.00",
                "s|VARCHAR|a|b|2|||4|25.00",
                "l|BIGINT[]||||||4|25.00",
            ]
        );
        // Quantiles are estimates.
        let quantiles: Vec<f64> = rows[0][7..10].iter().map(|q| q.parse().unwrap()).collect();
        assert!(quantiles.is_sorted() && quantiles[0] >= 1.0 && quantiles[2] <= 5.0);
        assert_eq!(rows[1][7..10], ["", "", ""]);
    }
    let (_, rows) = table("summarize nation", 2).await.unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows[1].starts_with("n_name|VARCHAR|ALGERIA|VIETNAM|25|"), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn show_tables_lists_those_that_are_named() {
    let (names, rows) = table("show tables", 2).await.unwrap();
    assert_eq!(names, "name|location");
    assert!(rows.contains(&"nation|nation".to_owned()), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_duckdb() {
    check(&[
        ("select len('é'), len([1, 2]), len([]), len(null)", &["1|2|0|"]),
        ("select list(k order by k desc) from t", &["[3, 2, 1]"]),
        ("select arg_max(a, b), arg_min(a, b), max_by(a, -b), arg_max(b, b) filter (where b < 7) from u",
            &["y|x|x|5"]),
        ("select b > 1, arg_max(a, b) from u group by 1 order by 1", &["false|x", "true|y", "|"]),
        ("select count_if(k > 1), count_if(k > 1) filter (where k < 3) from t", &["2|1"]),
        ("select group_concat(k order by k), group_concat(k, '-' order by k) from t", &["1,2,3|1-2-3"]),
        ("select first(k order by k), last(k order by k), variance(k) from t", &["1|3|1.0"]),
        ("select if(k > 1, 'a', 'b') from t order by k", &["b", "a", "a"]),
        ("select mod(5, 3), xor(5, 3), ord('A'), unicode('A'), sign(-2.5), strlen('é')", &["2|6|65|65|-1.0|2"]),
        ("select list_value(1, 2), string_split('a,b', ','), prefix('abc', 'ab'), suffix('abc', 'c')",
            &["[1, 2]|[a, b]|true|true"]),
        ("select struct_pack(a := 1, b := 'x').b, {'a': 2}.a", &["x|2"]),
        ("select s.x['a'], s.x['l'][1] from (select {'a': k, 'l': [k + 1]} as x from t) s where s.x['a'] = 2",
            &["2|3"]),
        ("select regexp_full_match('abc', 'b'), regexp_full_match('abc', 'a|abc')", &["false|true"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regexp_extract_has_the_first_match() {
    check(&[
        ("select regexp_extract('abc123', '[0-9]+'), regexp_extract('x', 'b'), regexp_extract(null, 'b')",
            &["123||"]),
        ("select regexp_extract('abc123', '([a-z])([0-9]+)', 2), regexp_extract('ab', 'b', 0)", &["123|b"]),
        ("select regexp_extract('b', '(a)?(b)', 1) = '', regexp_extract('b', '(a)?(b)', 2)", &["true|b"]),
        ("select regexp_extract(a, '[x-z]') from u order by b", &["x", "x", "y", "", "z"]),
        ("select regexp_extract('x' || k, 'x(' || k || ')', 1) from t order by k", &["1", "2", "3"]),
        ("select count(*) from nation where regexp_extract(n_name, '^(.).*(.)$', 2) = 'A'", &["11"]),
    ])
    .await;
    for (sql, part) in [
        ("select regexp_extract('a', '(')", "no regular expression"),
        ("select regexp_extract(n_name, '(a)', 2) from nation", "no group 2"),
    ] {
        let failed = table(sql, 2).await.unwrap_err();
        assert!(failed.contains(part), "{sql}: {failed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_times() {
    check(&[
        ("select strftime(date '2024-01-31', '%d.%m.%Y'), strftime(timestamp '2024-01-31 05:06:07.123456', '%f|%g|%-d %b %H:%M')",
            &["31.01.2024|123456|123|31 Jan 05:06"]),
        ("select strftime(date '9999-12-31', '%Y %H')", &["9999 00"]),
        ("select strptime('2024/01/31', '%Y/%m/%d'), strptime('31 Jan 2024 05:06', '%d %b %Y %H:%M')",
            &["2024-01-31T00:00:00|2024-01-31T05:06:00"]),
        ("select strptime('2024-01-31 05:06:07.123', '%Y-%m-%d %H:%M:%S.%g')", &["2024-01-31T05:06:07.123"]),
        ("select epoch_ms(timestamp '2024-01-01 00:00:00.5'), epoch_ms(1704067200000), epoch_ms(date '2024-01-01')",
            &["1704067200500|2024-01-01T00:00:00|1704067200000"]),
        ("select epoch_us(timestamp '1970-01-01 00:00:01'), epoch_ns(timestamp '1970-01-01 00:00:01')",
            &["1000000|1000000000"]),
        ("select year(d), month(d), day(d), quarter(d), week(d), dayofyear(d), dayofweek(d), weekday(d), isodow(d)
          from (values (date '2024-12-29')) v(d)", &["2024|12|29|4|52|364|0|0|7"]),
        ("select hour(d), minute(d), second(d), epoch(d) from (values (timestamp '1970-01-01 05:06:07')) v(d)",
            &["5|6|7|18367.0"]),
        ("select dayname(date '2024-01-31'), monthname(date '2024-01-31'), last_day(date '2024-02-05')",
            &["Wednesday|January|2024-02-29"]),
        ("select date_diff('day', date '2024-01-31', date '2024-02-02'), date_diff('month', date '2024-01-31', date '2024-02-01')",
            &["2|1"]),
        ("select datediff('year', date '2023-12-31', date '2024-01-01'), datediff('quarters', date '2024-02-01', date '2023-12-31')",
            &["1|-1"]),
        ("select date_diff('hour', timestamp '2024-01-01 00:59:00', timestamp '2024-01-01 01:01:00'),
                 date_diff('minute', timestamp '1969-12-31 23:59:30', timestamp '1970-01-01 00:00:30')",
            &["1|1"]),
        ("select to_char(timestamp '2024-01-31 15:06:07', 'DD.MM.YYYY HH24:MI'), to_date('31.01.2024', 'DD.MM.YYYY')",
            &["31.01.2024 15:06|2024-01-31"]),
        ("select date_add(date '2024-01-31', interval 1 day)::date, date('2024-01-31')", &["2024-02-01|2024-01-31"]),
    ])
    .await;
    for (sql, part) in [
        ("select strftime(date '2024-01-31', '%c')", "no function `strftime`"),
        ("select len(1)", "SM-0103"),
        ("select epoch_ms('x')", "SM-0103"),
    ] {
        let report = refusal(&spec(sql, 1)).await;
        assert!(report.contains(part), "{sql}: {report}");
    }
}

#[tokio::test]
async fn a_function_of_the_user_has_precedence() {
    let mut query = spec("select sign(n) from odd", 1);
    query.udfs.retain(|signature| signature.name == "double_it");
    query.udfs.iter_mut().for_each(|signature| signature.name = "sign".to_owned());
    assert_eq!(snowmelt_query::plan(&query).await.unwrap().udfs().unwrap(), ["sign"]);
    let report = refusal(&spec("select grup_concat('a')", 1)).await;
    assert!(report.contains("did you mean `group_concat`"), "{report}");
}
