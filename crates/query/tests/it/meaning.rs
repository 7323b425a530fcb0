//! Statements whose answers DataFusion and its parser give otherwise than SQL: each has the answer
//! that PostgreSQL gives.

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::runner::{answer, refusal, spec};

/// The rows as text, with `|` between columns and a null as nothing.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> =
                columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows.sort();
    rows
}

/// Compares the sorted rows, which the expectation has one after another.
async fn check(cases: &[(&str, &[&str])]) {
    let mut wrong = Vec::new();
    for (sql, expected) in cases {
        for workers in [1, 3] {
            match answer(&spec(sql, workers), std::sync::Arc::default()).await {
                Ok((batches, _)) if rows(&batches) == *expected => (),
                Ok((batches, _)) => {
                    wrong.push(format!("{sql}\n   gives {:?}, not {expected:?}", rows(&batches)));
                }
                Err(error) => wrong.push(format!("{sql}\n   fails: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn check_refused(cases: &[(&str, &str)]) {
    for (sql, part) in cases {
        let report = refusal(&spec(sql, 2)).await;
        assert!(report.contains(part), "{sql}: {report}");
    }
}

/// Two tables with a common key, of which each has rows without a partner. The name of the second
/// is before that of the first in the alphabet.
const TABLES: &str = "with t(x, k) as (values (10, 1), (20, 2), (30, null)),
    s(k, y) as (values (2, 200), (3, 300), (null, 400)) ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_using_is_one_column() {
    let with = |sql: &str| format!("{TABLES}{sql}");
    let cases: &[(&str, &[&str])] = &[
        ("select * from t join s using (k)", &["2|20|200"]),
        ("select * from t left join s using (k)", &["1|10|", "2|20|200", "|30|"]),
        ("select * from t right join s using (k)", &["2|20|200", "3||300", "||400"]),
        (
            "select * from t full join s using (k)",
            &["1|10|", "2|20|200", "3||300", "|30|", "||400"],
        ),
        ("select * from t natural full join s where k > 2", &["3||300"]),
        (
            "select k, t.k a, s.k b from t natural full join s where k > 0",
            &["1|1|", "2|2|2", "3||3"],
        ),
        ("select k + 1 from t right join s using (k) where k = 3", &["4"]),
        (
            "select k, count(*) from t full join s using (k) group by k having k > 1",
            &["2|1", "3|1"],
        ),
        ("select count(k), count(t.k) from t full join s using (k)", &["3|2"]),
        ("select k from t full join s using (k) order by k limit 2", &["1", "2"]),
        ("select y from t full join s using (k) order by k desc nulls last limit 1", &["300"]),
        ("select k from t join s using (k) where k in (select k from t)", &["2"]),
        ("select * from t join s using (k) join t as u using (k)", &["2|20|200|20"]),
        (
            "select * from t full join s using (k) full join (values (3, 5), (4, 6)) u(k, z)
             using (k) where k > 2",
            &["3||300|5", "4|||6"],
        ),
        ("select * exclude (x) from t right join s using (k) where k is null", &["|400"]),
        ("select * replace (k * 2 as k) from t right join s using (k) where k = 2", &["4|20|200"]),
        ("select t.*, y from t right join s using (k) where k > 2", &["||300"]),
        ("select * from (t full join s using (k)) where k = 3", &["3||300"]),
        (
            "select * from (select * from t full join s using (k)) j right join
             (values (3, 'c')) v(k, name) using (k)",
            &["3||300|c"],
        ),
        ("select x from t left semi join s using (k)", &["20"]),
        ("select x from t anti join s using (k)", &["10", "30"]),
        (
            "select k from t full join s using (k) union all select k from t natural right join s
             where k = 3",
            &["", "", "1", "2", "3", "3"],
        ),
    ];
    let owned: Vec<(String, &[&str])> = cases.iter().map(|(sql, it)| (with(sql), *it)).collect();
    let cases: Vec<(&str, &[&str])> = owned.iter().map(|(sql, it)| (sql.as_str(), *it)).collect();
    check(&cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn is_distinct_from_ends_before_and() {
    check(&[
        ("select 1 is distinct from 2 and false", &["false"]),
        ("select null is not distinct from null or 1 / 0 = 1", &["true"]),
        ("select not 1 is distinct from 1 and true", &["true"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn null_safe_joins_keep_their_nulls_beside_other_joins() {
    const ABC: &str = "with a(x) as (values (1), (null)), b(y) as (values (1), (null)),
        c(z) as (values (1), (null)) ";
    let cases: &[(&str, &[&str])] = &[
        (
            "select count(*) from a join b on b.y = a.x join c on (c.z is not distinct from a.x)",
            &["1"],
        ),
        (
            "select count(*) from a join c on (c.z is not distinct from a.x) join b on b.y = a.x",
            &["1"],
        ),
        (
            "select a.x, c.z, b.y from a join c on c.z is not distinct from a.x
             join b on b.y is not distinct from a.x",
            &["1|1|1", "||"],
        ),
        (
            "select count(*) from a join c on c.z is not distinct from a.x
             join (values (7)) d(w) on d.w > 1",
            &["2"],
        ),
        (
            "select a.x, b.y, c.z from a left join b on b.y = a.x
             join c on c.z is not distinct from b.y",
            &["1|1|1", "||"],
        ),
        (
            "select count(*) from a left join c on c.z is not distinct from a.x and c.z = a.x",
            &["2"],
        ),
        ("select count(*) from a, b, c where a.x is not distinct from b.y and b.y = c.z", &["1"]),
        (
            "select count(*) from a full join c on c.z is not distinct from a.x where a.x is null",
            &["1"],
        ),
    ];
    let owned: Vec<(String, &[&str])> =
        cases.iter().map(|(sql, it)| (format!("{ABC}{sql}"), *it)).collect();
    let cases: Vec<(&str, &[&str])> = owned.iter().map(|(sql, it)| (sql.as_str(), *it)).collect();
    check(&cases).await;
}

const OUTER: &str =
    "with o(k) as (values (1), (2), (3)), t(k, v) as (values (1, 5), (1, 6), (2, 0)) ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subquery_has_its_rows_for_each_outer_row() {
    let all: &[&str] = &["1", "2", "3"];
    let cases: &[(&str, &[&str])] = &[
        ("exists (select count(*) from t where t.k = o.k)", all),
        ("not exists (select count(*) from t where t.k = o.k)", &[]),
        ("exists (select max(v) from t where t.k = o.k having count(*) > 1)", &["1"]),
        ("not exists (select 1 from t where t.k = o.k having count(*) = 0)", &["1", "2"]),
        ("exists (select v, count(*) from t where t.k = o.k group by rollup (v))", all),
        ("exists (select count(*) from t where t.k = o.k group by cube (v))", all),
        ("not exists (select 1 from t where t.k = o.k group by grouping sets ((v), ()))", &[]),
        ("exists (select 1 from t where t.k = o.k group by grouping sets ((v), (k)))", &["1", "2"]),
        ("exists (select v from t where t.k = o.k group by v having count(*) > 0)", &["1", "2"]),
        ("exists (select 1 from t where t.k = o.k offset 1)", &["1"]),
        ("not exists (select 1 from t where t.k = o.k offset 1)", &["2", "3"]),
        ("exists (select 1 from t where t.k = o.k limit 1)", &["1", "2"]),
        ("exists (select 1 from t where t.k = o.k limit 0)", &[]),
        ("exists (select count(*) from t where t.k = o.k offset 1)", &[]),
        ("exists (select row_number() over () from t where t.k = o.k)", &["1", "2"]),
        ("k + 4 in (select max(v) - 1 from t where t.k = o.k)", &["1"]),
        ("0 in (select count(*) from t where t.k = o.k)", &["3"]),
        ("2 not in (select count(*) from t where t.k = o.k)", &["2", "3"]),
        ("6 not in (select max(v) from t where t.k = o.k)", &["2"]),
        ("2 in (select count(*) from t where t.k = o.k having min(v) > 1)", &["1"]),
        ("2 not in (select count(*) from t where t.k = o.k having min(v) > 1)", &["2", "3"]),
        ("(select count(*) from t where t.k = o.k) = 0 or k = 1", &["1", "3"]),
        ("(select max(v) from t where t.k = o.k having count(*) > 1) is null", &["2", "3"]),
    ];
    let owned: Vec<(String, &[&str])> = cases
        .iter()
        .map(|(sql, it)| (format!("{OUTER}select k from o where {sql}"), *it))
        .collect();
    let cases: Vec<(&str, &[&str])> = owned.iter().map(|(sql, it)| (sql.as_str(), *it)).collect();
    check(&cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subquery_that_no_join_computes_is_refused() {
    for condition in [
        "k in (select v from t where t.k = o.k limit 1)",
        "k in (select v from t where t.k = o.k offset 1)",
        "k in (select row_number() over (order by v) from t where t.k = o.k)",
        "k in (select count(*) from t where t.k = o.k group by rollup (v))",
        "exists (select 1 from (select v, row_number() over () n from t where t.k = o.k) where n > 1)",
        "exists (select 1 from t where t.k = o.k union all select 1 from t where t.v = o.k)",
        "k = (select max(v) from (select v from t where t.k = o.k limit 1))",
        "k = (select max(c) from (select count(*) c from t where t.k = o.k))",
    ] {
        let sql = format!("{OUTER}select k from o where {condition}");
        check_refused(&[(&sql, "SM-0107"), (&sql, "refers to the outer query")]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_in_sees_the_nulls_of_expressions() {
    // Of a table whose columns are never null.
    check(&[
        (
            "select count(*) from nation where nullif(n_regionkey, 1) not in
             (select n_nationkey from nation where n_nationkey > 3)",
            &["15"],
        ),
        (
            "select count(*) from nation where
             (case when n_regionkey > 1 then n_regionkey end) not in
             (select n_nationkey from nation where n_nationkey > 3)",
            &["10"],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn similar_to_is_of_the_whole_text() {
    check(&[
        ("select 'abc' similar to 'b'", &["false"]),
        ("select 'abc' similar to '%b%'", &["true"]),
        ("select 'abc' similar to 'a(b|x)_'", &["true"]),
        ("select 'a.c' similar to 'a.c', 'abc' similar to 'a.c'", &["true|false"]),
        (
            "select 'a%' similar to 'a#%' escape '#', 'ab' similar to 'a#%' escape '#'",
            &["true|false"],
        ),
        ("select 'abc' not similar to '[a-c]+', null similar to 'a'", &["false|"]),
        ("select E'a\\nb' similar to 'a%'", &["true"]),
        (
            "select n_name from nation where n_name similar to '(I|J)_%A_'",
            &["IRAN", "IRAQ", "JAPAN", "JORDAN"],
        ),
    ])
    .await;
    check_refused(&[("select n_name similar to n_comment from nation", "SM-0101")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn literals_mean_what_is_written() {
    check(&[
        ("select timestamp with time zone '2024-06-01 12:00:00Z'", &["2024-06-01T12:00:00Z"]),
        ("select timestamptz '2024-06-01 12:00:00+02:00'", &["2024-06-01T10:00:00Z"]),
        (
            "select arrow_typeof('2024-06-01T12:00:00Z'::timestamptz)",
            &["Timestamp(ns, \"+00:00\")"],
        ),
        (
            "select timestamp '2024-01-31 10:00', timestamp '9999-12-31 23:59:59'",
            &["2024-01-31T10:00:00|9999-12-31T23:59:59"],
        ),
        ("select 1_000, 1_000.5, 10_0 + 1", &["1000|1000.5|101"]),
        ("select 2^10, 2 * 3 ^ 2, -2 ^ 2, 2 ^ -1", &["1024.0|18.0|4.0|0.5"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decimals_are_rounded() {
    const D: &str = "(values (1::decimal(5, 2)), (2::decimal(5, 2)), (2::decimal(5, 2))) t(d)";
    let of = |sql: &str| format!("select {sql} from {D}");
    let averages = [
        (of("avg(d)"), "1.666667"),
        (of("avg(-d)"), "-1.666667"),
        (of("avg(distinct d)"), "1.500000"),
        (of("avg(d::decimal(38, 2))"), "1.666667"),
        (of("avg(d) filter (where d > 5)"), ""),
    ];
    let grouped = of("k, avg(d) from (select d, 1 k");
    let grouped = (format!("{grouped}) group by k"), "1|1.666667");
    for (sql, expected) in averages.iter().chain([&grouped]) {
        check(&[(sql, &[expected])]).await;
    }
    check(&[
        ("select avg(d) over (order by d rows 1 preceding) from (values (1.0::decimal(5, 1)), (2), (2)) t(d)",
            &["1.00000", "1.50000", "2.00000"]),
        ("select 2::decimal(5, 0) / 3::decimal(5, 0), -2::decimal(5, 0) / 3", &["0.6667|-0.6667"]),
        ("select 1::decimal(5, 0) / 3::decimal(5, 0), null::decimal(5, 0) / 3", &["0.3333|"]),
        ("select 1.005::decimal(5, 2), -1.005::decimal(5, 2), cast(2.5 as decimal(3, 0))",
            &["1.01|-1.01|3"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn casts_to_integers_are_rounded() {
    check(&[
        ("select 12.7::int, -12.7::int, 12.5::int, 0.5::bigint", &["13|-13|13|1"]),
        ("select 12.5::double::int, 13.5::double::int, try_cast(-0.6 as int)", &["12|14|-1"]),
        ("select d::int from (values (9.9::decimal(2, 1))) t(d)", &["10"]),
        ("select x::bigint from (values (2.5::double), (3.5), (null)) t(x)", &["", "2", "4"]),
    ])
    .await;
}

#[tokio::test]
async fn no_message_has_a_syntax_tree() {
    for sql in [
        "select n_name, n_regionkey in (select r_regionkey from region) from nation",
        "select case when exists (select 1 from region where r_regionkey = n_regionkey) then 1 end
         from nation",
        "select n_name collate \"C\" from nation",
        "select * from nation asof join region match_condition (n_regionkey >= r_regionkey)",
        "select n_name from nation tablesample (10 percent)",
    ] {
        if let Err(error) = snowmelt_query::plan(&spec(sql, 1)).await {
            let report = snowmelt_types::Report::report(&error).to_string();
            assert!(!report.contains(" {") && !report.contains("(In"), "{sql}: {report}");
            assert!(report.contains("SM-010"), "{sql}: {report}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_is_computed_only_where_its_guards_pass() {
    const T: &str = "with t(k) as (values (1), (2), (3), (9)) ";
    let cases: [(&str, &[&str]); 5] = [
        ("select k from t where k <> 1 and 10 / (k - 1) > 3", &["2", "3"]),
        (
            "select k from t where case when k <> 1 then 10 / (k - 1) > 3 else true end",
            &["1", "2", "3"],
        ),
        (
            "select k, case when k <> 1 then 10 % (k - 1) = 0 end from t",
            &["1|", "2|true", "3|true", "9|false"],
        ),
        ("select k from t where case k when 1 then false else 10 / (k - 1) > 3 end", &["2", "3"]),
        ("select count(*) from t where k > 1 and k < 9 and 10 / (k - 1) > 3", &["2"]),
    ];
    let owned: Vec<(String, &[&str])> =
        cases.iter().map(|(sql, it)| (format!("{T}{sql}"), *it)).collect();
    let cases: Vec<(&str, &[&str])> = owned.iter().map(|(sql, it)| (sql.as_str(), *it)).collect();
    check(&cases).await;
}
