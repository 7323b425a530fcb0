//! Values of DuckDB's and PostgreSQL's everyday functions, and types of their results. Each expected
//! answer is DuckDB's, and PostgreSQL's where they differ.

use crate::everyday::{TABLES, check, table};
use crate::runner::{InProcess, failure, spec};

async fn check_refusals(cases: &[(&str, &str, &str)]) {
    for (sql, code, part) in cases {
        let report = match table(&format!("{TABLES}{sql}"), 2).await {
            Ok((_, rows)) => panic!("{sql} gives {rows:?}"),
            Err(report) => report,
        };
        assert!(report.contains(part), "{sql}: {report}");
        assert!(code.is_empty() || report.contains(code), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_of_lists_have_the_type_of_sums() {
    check(&[
        ("select list_sum([1, 2]), arrow_typeof(list_sum([1, 2])), list_sum([null]::int[]), list_sum([])",
            &["3|Int64||"]),
        ("select array_sum([9223372036854775807, 1, -5]), list_sum([1.5::decimal(3, 1), 2]), list_sum([1.5::double, null])",
            &["9223372036854775803|3.5|1.5"]),
        ("select typeof(list_sum([1.5::decimal(3, 1)])), typeof(list_sum([1::int unsigned]))",
            &["DECIMAL(38, 1)|BIGINT UNSIGNED"]),
        ("select list_aggregate([1, null], 'count'), list_count(null::int[]), list_aggregate([1, 2], 'sum')",
            &["1||3"]),
        ("select n_regionkey, list_sum(list(n_nationkey)) from nation group by 1 order by 1 limit 2",
            &["0|50", "1|47"]),
    ])
    .await;
    check_refusals(&[
        ("select list_sum([9223372036854775807, k]) from t", "", "does not fit BIGINT"),
        ("select list_sum(['a'])", "", "takes a list of numbers"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_date_and_an_interval_are_a_timestamp() {
    check(&[
        ("select date '2024-01-31' + interval '1 day', date '2024-01-31' - interval '1 hour',
                 interval '1 month' + date '2024-01-31'",
            &["2024-02-01T00:00:00|2024-01-30T23:00:00|2024-02-29T00:00:00"]),
        ("select typeof(date '2024-01-31' + interval 1 day), typeof(date '2024-01-31' + 1),
                 typeof(date_add(date '2024-01-31', interval '1' day))",
            &["TIMESTAMP|DATE|TIMESTAMP"]),
        ("select date '9999-12-31' - interval '1 day', date '2024-02-01' - date '2024-01-01'",
            &["9999-12-30T00:00:00|31"]),
        ("select date '2024-01-31' + interval '1 day' = date '2024-02-01',
                 date '2024-01-31' + interval '1 hour' > date '2024-01-31',
                 date '2024-01-31' between date '2024-01-30' + interval '1 hour' and date '2024-01-31' + interval '0 day',
                 date '2024-01-31' in (date '2024-01-30' + interval '1 day', date '2020-01-01')",
            &["true|true|true|true"]),
        ("select count(*) from lineitem where l_shipdate + interval '12 hours' > l_shipdate", &["60175"]),
    ])
    .await;
}

/// Row groups are left out by dates, not by timestamps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dates_with_whole_days_are_compared_as_dates() {
    for (condition, bound) in [
        ("l_shipdate <= date '1998-12-01' - interval '90' day", "1998-09-02"),
        (
            "l_shipdate between date '1994-01-01' and date '1994-01-01' + interval '1' year",
            "1995-01-01",
        ),
        ("l_shipdate in (date '1994-01-01' + interval '1 month', date '1995-01-01')", "1994-02-01"),
        ("interval '2 days' + date '1994-01-01' > l_shipdate", "1994-01-03"),
    ] {
        let sql = format!("explain select count(*) from lineitem where {condition}");
        let (_, plan) = table(&sql, 2).await.unwrap();
        let plan = plan.join("\n");
        assert!(plan.contains(bound) && !plan.contains("Timestamp"), "{condition}: {plan}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_by_all_beside_a_star() {
    const V: &str = "(values (2, 1), (1, 2), (1, 1)) v(b, a)";
    for (sql, expected) in [
        ("select *, 1 from {} order by all", &["1|1|1", "1|2|1", "2|1|1"][..]),
        ("select * exclude (a), a + 1 as c from {} order by all desc limit 2", &["2|2", "1|3"]),
        ("with w as (from {}) select x.*, 5 from w x order by all limit 1", &["1|1|5"]),
        ("select x from (select v.*, b + a as x from {} order by all limit 1)", &["2"]),
    ] {
        for workers in [1, 3] {
            let sql = sql.replace("{}", V);
            assert_eq!(table(&sql, workers).await.unwrap().1, expected, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_becomes_one_value_or_another_list() {
    check(&[
        ("select list_reduce([1, 2, 3], lambda x, y: x + y), reduce([1, 2], (x, y) -> x + y * 0.5),
                 list_reduce([1, 2, 3], lambda x, y, i: x * 10 + i), list_reduce([1, 2], lambda x, y: x + y, 10),
                 list_reduce([1, null, 3], lambda x, y: x + y), list_reduce(['a', 'b'], lambda x, y: x || y),
                 list_reduce(null::int[], lambda x, y: x + y), list_reduce([], lambda x, y: x, 7)",
            &["6|2.0|123|13||ab||7"]),
        // Each step gives a decimal of the same type.
        ("select list_reduce([1.5, 2.25]::decimal(4, 2)[], lambda x, y: x * y)", &["3.38"]),
        ("select k, list_reduce(range(k * (k - 1)), lambda x, y: x + y + k, 0) from t order by k",
            &["1|0", "2|5", "3|33"]),
        ("select n_regionkey, list_reduce(list(n_nationkey order by n_nationkey), lambda x, y: x * 2 + y)
          from nation group by 1 order by 1 limit 2", &["0|142", "1|102"]),
        ("select [x + 1 for x in [1, 2, 3] if x > 1], [x for x in [1]], [[x * y for y in [1, 2]] for x in [3, 4]]",
            &["[3, 4]|[1]|[[3, 6], [4, 8]]"]),
        ("select k, [x * k for x in [k, 2] if x <= k] from t order by k", &["1|[1]", "2|[4, 4]", "3|[9, 6]"]),
        ("select [substring('abc' from 2 for 1), 'x'], [1, 2][1]", &["[b, x]|1"]),
    ])
    .await;
    check_refusals(&[
        ("select list_reduce([k][2:], lambda x, y: x + y) from t", "", "empty list"),
        ("select list_reduce([1])", "", "takes a list, a lambda"),
        ("select [x + i for x, i in [1]]", "SM-0101", "takes one name"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_bits_and_times() {
    check(&[
        ("select typeof('a'), typeof([1.5]), typeof({'a': date '2024-01-01'}), typeof(k) from t where k = 1",
            &["VARCHAR|DOUBLE[]|STRUCT(a DATE)|BIGINT"]),
        ("select bit_count(7), bit_count(-1), bit_count(-1::smallint), ~5, ~k from t where k = 1",
            &["3|64|16|-6|-2"]),
        ("select make_timestamp(2024, 1, 31, 1, 2, 3.5), make_timestamp(1000000), make_timestamp(null, 1, 1, 1, 1, 1)",
            &["2024-01-31T01:02:03.500|1970-01-01T00:00:01|"]),
        ("select date '2024-01-31' + to_days(3), timestamp '2024-01-01 00:00:00' - to_hours(1.5), date '2024-01-31' + to_months(k) from t where k = 1",
            &["2024-02-03T00:00:00|2023-12-31T22:30:00|2024-02-29T00:00:00"]),
        ("select age(timestamp '2024-03-01 00:00:00', timestamp '2024-01-31 00:00:00'), age(date '2000-01-01') > interval '26 years'",
            &["1 mons 1 days|true"]),
        ("select date_diff('week', date '2024-01-01', date '2024-02-01'), date_diff('week', date '2024-01-07', date '2024-01-08'),
                 date_diff('millisecond', timestamp '2024-01-01 00:00:00', timestamp '2024-01-01 00:00:01.5')",
            &["4|0|1500"]),
        ("select regexp_split_to_array('a  b c', '\\s+'), regexp_extract_all('a1b22', '([a-z])([0-9]+)', 2),
                 regexp_matches('abc', 'b'), string_split_regex('a1b', '[0-9]'), regexp_extract_all(a, 'q') from u where b = 1",
            &["[a, b, c]|[1, 22]|true|[a, b]|[]"]),
        ("select histogram(n_regionkey)[3], map_keys(histogram(n_regionkey)), histogram(n_regionkey) filter (where n_regionkey < 0)
          from nation", &["5|[0, 1, 2, 3, 4]|"]),
    ])
    .await;
    check_refusals(&[
        ("select make_timestamp(2024, 13, 1, 0, 0, 0)", "", "there is no time of the parts"),
        ("select make_timestamp(2024, 1)", "", "`make_timestamp` takes"),
        ("select to_days(0.5)", "", "whole numbers"),
    ])
    .await;
    for sql in
        ["select 1 // 0", "select 1 // 0 from (values (1)) v(x)", "select k // (k - 1) from t"]
    {
        let report = failure(&spec(&format!("{TABLES}{sql}"), 1), InProcess::default()).await;
        assert!(report.contains("SM-0109"), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn formats_of_texts() {
    check(&[
        ("select printf('%d %5.2f %s %x|%%', 1, 2.345, 'a', 255), printf('%5d|%-5d|%05d|%+d|%e|%g', 1, 2, 3, 4, 12345.678, 0.0001)",
            &["1  2.35 a ff|%|    1|2    |00003|+4|1.234568e+04|0.0001"]),
        ("select format('%s', timestamp '2024-01-31 10:00:00'), printf('%s', interval '1 day')",
            &["2024-01-31 10:00:00|1 day"]),
        ("select printf('%,d', 1234567), printf('%s', k), printf('%d', null) from t where k = 1",
            &["1,234,567|1|"]),
        ("select format('{} {:.2f} {:>5} {:,} {:05d} {:x}', 1, 2.345, 'a', 1234567, 42, 255), format('{1} {0} {{}}', 'a', 'b')",
            &["1 2.35     a 1,234,567 00042 ff|b a {}"]),
        ("select format('{}', 1.5), format('{}', date '2024-01-01'), format('{}', true), format('{}', null), format('{}%', k) from t where k = 3",
            &["1.5|2024-01-01|true||3%"]),
        ("select format('{:e}', 1234.5), format('{:g}', 1234.5), format('{:<5}|{:^5}|', 'a', 'b'), format('{:*^7}', 'a'), format('{:,.1f}', -1234.56)",
            &["1.234500e+03|1234.5|a    |  b  ||***a***|-1,234.6"]),
        // PostgreSQL's.
        ("select format('%s of %I: %L, %L%%', 1, 'A b', 'it''s', null), format('%2$s-%1$s|%-4s|%3s', 'a', 'b', 'c')",
            &["1 of \"A b\": 'it''s', NULL%|b-a|b   |  c"]),
    ])
    .await;
    check_refusals(&[
        ("select printf('%d', 1.5)", "", "the form d takes a whole number"),
        ("select printf('%d')", "", "there is no value 1"),
        ("select printf('%y', 1)", "", "there is no form y"),
        ("select format('{', 1)", "", "a { has no }"),
        ("select printf('%999999999d', 1)", "", "too large"),
        ("select printf(1)", "", "a format is a text"),
    ])
    .await;
}

/// Series of the planner are in order; what is above them on workers does not know it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_are_grouped_and_joined() {
    check(&[
        ("select a.x % 2, count(*) from range(5) a(x) group by 1 order by 1", &["0|3", "1|2"]),
        ("select count(*) from range(5) a(x) join generate_series(1, 3) b(y) on a.x = b.y", &["3"]),
        ("select x, n_name from range(5) a(x) join nation on n_nationkey = x order by x desc limit 1", &["4|EGYPT"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn digits_and_quantiles() {
    check(&[
        ("select hex(-1), hex(k), hex(a), bin(k) from t, u where k = 3 and b = 5", &["FFFFFFFFFFFFFFFF|3|79|11"]),
        ("select octet_length('\\xAABB'::blob), octet_length('é'), octet_length(null)", &["2|2|"]),
        ("select quantile_cont(b, [0.25, 0.5]), quantile_disc(b, [0.5, 1]), quantile(b, 0.9) from u",
            &["[1.75, 3.5]|[2, 7]|7"]),
        ("select a, quantile_cont(b, [0.5]) filter (where b < 7) from u group by a order by a", &["x|[1.5]", "y|[5.0]", "z|", "|"]),
        ("select round(geomean(k), 6), sem(k) is null, round(sem(k), 6) from t", &["1.817121|false|0.471405"]),
        ("select list_first([1, 2]), list_first([1, 2], lambda x: x > 1), list_last([1, 2]), list_first([])", &["1|2|2|"]),
        ("select list_sort([3, null, 1]), list_reverse_sort([1, null, 3]), list_sort([1, 2], 'desc')", &["[1, 3, ]|[3, 1, ]|[2, 1]"]),
        ("select isinf(x), isfinite(x) from (values ('nan'::double), ('-inf'::double), (1.0)) v(x) order by x",
            &["true|false", "false|true", "false|false"]),
        ("select extract(century from date '2001-01-01'), extract(decade from date '1999-12-31'), millennium(date '2000-01-01')",
            &["21|199|2"]),
        ("select * rename (b as c) from u where b = 5", &["y|5"]),
        ("select listagg(k, '-') within group (order by k desc) from t", &["3-2-1"]),
        ("select k, grouping_id(k) from t group by rollup (k) having grouping_id(k) = 1", &["|1"]),
        ("select 12345678901234567890 + 1, -9223372036854775808 + 0", &["12345678901234567891|-9223372036854775808"]),
    ])
    .await;
    check_refusals(&[
        ("select hex(1.5)", "", "`hex` takes an integer"),
        (
            "select date_sub('month', date '2024-01-01', date '2024-01-01')",
            "",
            "from 'microsecond' to 'week'",
        ),
    ])
    .await;
}
