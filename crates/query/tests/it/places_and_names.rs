//! What names and numbers in ORDER BY and GROUP BY stand for: columns of the tables, or items of the
//! SELECT. Each expected answer is PostgreSQL's, and DuckDB's where PostgreSQL refuses the query.

use crate::everyday::{TABLES, check, table};

async fn refused(cases: &[(&str, &str)]) {
    for (sql, part) in cases {
        let report = match table(&format!("{TABLES}{sql}"), 2).await {
            Ok((_, rows)) => panic!("{sql} gives {rows:?}"),
            Err(report) => report,
        };
        assert!(report.contains(part), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_inside_an_expression_is_a_column_of_the_table() {
    let descending: &[&str] = &["-1", "-2", "-3"];
    let ascending: &[&str] = &["-3", "-2", "-1"];
    check(&[
        ("select -k as k from t order by k", ascending),
        ("select -k as k from t order by (k)", ascending),
        ("select -k as k from t order by 1", ascending),
        ("select -k as k from t order by t.k", descending),
        ("select -k as k from t order by k + 0", descending),
        ("select -k as k from t order by -k", ascending),
        ("select -k as k from t order by abs(k)", descending),
        ("select -k as k from t order by case when true then k end", descending),
        ("select -k as k from t order by k::bigint", descending),
        ("select -k as k from t order by row_number() over (order by k)", descending),
        ("select -k as k from t order by k + 0 limit 2", &["-1", "-2"]),
        ("select * from (select -k as k from t order by k + 0 limit 1) s", &["-1"]),
        ("select k from t where -k in (select -k as k from t order by k + 0 limit 1)", &["1"]),
        ("(select -k as k from t) order by k + 0", descending),
        ("select (10 - k)::varchar as k from t order by k + 0", &["9", "8", "7"]),
        ("select -t.k as k from t join t s using (k) order by k + 0", descending),
        (
            ", s as (from t) select -k as k, random() < 2 from s order by k + 0",
            &["-1|true", "-2|true", "-3|true"],
        ),
        ("select distinct k % 2 = 0 as k from t order by k % 2 = 0", &["false", "true"]),
        ("select -k as k from t group by k order by k + 0", descending),
        ("select -k as k from t group by k order by k + 0 desc limit 1", &["-3"]),
        (
            "select a as x, -b as b from u where a < 'z' order by x desc, b + 0 desc",
            &["y|-5", "x|-2", "x|-1"],
        ),
        (
            "select a as x, -b as b from u where a < 'z' order by 1, u.b desc, length(u.a), b + 0",
            &["x|-2", "x|-1", "y|-5"],
        ),
        // No table has the name.
        ("select -k as z from t order by z + 0", ascending),
        ("select -k as k, k as y from t order by y + k", &["-1|1", "-2|2", "-3|3"]),
        ("select -k as k from t union all select k from t order by k + 0 limit 2", &["-3", "-2"]),
        (
            "select a as x, sum(b) as a from u where a < 'z' group by a order by a || ''",
            &["x|3", "y|5"],
        ),
        (
            "select a, -max(b) as b from u where a < 'z' group by a order by max(b)",
            &["x|-2", "y|-5"],
        ),
        ("select distinct on (a) a, -b as b from u where a = 'x' order by a, b + 0", &["x|-1"]),
        ("select s.k from (select -k as k from t) s order by k + 0", ascending),
        // In subqueries that are values and refer to the outer query, too.
        ("select k, (select -b as b from u where u.b <= t.k order by b + 0 desc limit 1) from t order by k",
            &["1|-1", "2|-2", "3|-2"]),
        ("select k, (select -b as b from u where u.b <= t.k order by abs(b), b limit 1) from t order by k",
            &["1|-1", "2|-1", "3|-1"]),
        ("select k from t where (select a || b as a from u where u.b <= t.k order by a || '', -b limit 1) = 'x2' order by k",
            &["2", "3"]),
        ("select k, (select a as b from u where b <= k order by case when b > 1 then 0 else 1 end, b limit 1) from t order by k",
            &["1|x", "2|x", "3|x"]),
        ("select (select -b as b from u where u.b < 6 order by b + 0 limit 1), (select distinct b as y from u where b < 3 order by -y limit 1)",
            &["-1|2"]),
        ("select k, (select -b as z from u where u.b <= t.k order by z * 2 limit 1) from t order by k",
            &["1|-1", "2|-2", "3|-2"]),
    ])
    .await;
    refused(&[
        ("select distinct -k as k from t order by k + 0", "the name of an item"),
        (
            "select -t.k as k from t join t s on t.k = s.k order by k + 0",
            "`k` is in more than one table",
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_of_aggregates_are_sorted_by_their_places() {
    check(&[
        ("select a, round(avg(b), 1) from u where a < 'z' group by a order by 2 desc", &["y|5.0", "x|1.5"]),
        ("select a, round(avg(b), 1) from u where a < 'z' group by a order by all", &["x|1.5", "y|5.0"]),
        (
            "select a, case when sum(b) > 4 then 1 else 0 end from u where a < 'z' group by a order by 2, 1",
            &["x|0", "y|1"],
        ),
        (
            "select a, max(b)::varchar || '!' from u group by a having max(b) > 1 order by 2",
            &["x|2!", "y|5!", "|7!"],
        ),
        ("select a, sum(b) / count(b) from u where b > 0 group by a order by 2 desc", &["|7", "y|5", "x|1"]),
        ("select distinct round(avg(b), 0) from u where a < 'z' group by a order by 1", &["2.0", "5.0"]),
        ("select distinct k % 2 from t order by k % 2 desc", &["1", "0"]),
        (
            "select a, round(avg(b), 1), round(avg(b), 1) from u where a < 'z' group by a order by 3 desc",
            &["y|5.0|5.0", "x|1.5|1.5"],
        ),
        ("select k, round(avg(k) over (order by k), 1) from t order by 2 desc limit 1", &["3|2.0"]),
    ])
    .await;
    refused(&[("select a, b from u group by a", "`u.b` of SELECT is neither in GROUP BY")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_subqueries_have_the_names_that_are_written() {
    const UUID: &str = "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'";
    for (sql, names) in [
        ("select * from (select t.k::varchar, k + 1, round(k, 1) from t)", "k|k + 1|round(k, 1)"),
        (", s as (select sum(k), 'x', count(*) from t) select * from s", "sum(k)|'x'|count(*)"),
        (
            "select s.* from (select v.x::uuid, (x)::uuid from (select {}::uuid as x) v) s",
            "x|(x)::UUID",
        ),
        (
            "select * from (select list_first([k]), k ** 2, k between symmetric 3 and 1 from t)",
            "list_first([k])|k ^ 2|k BETWEEN SYMMETRIC 3 AND 1",
        ),
        ("select * from (select k, k, k + 1, k + 1 from t)", "k|k_1|k + 1|k + 1_1"),
        ("select * from (select k + 1 from t union all select 7)", "k + 1"),
        ("select * from (select distinct k % 2 from t order by 1)", "k % 2"),
    ] {
        let sql = format!("{TABLES}{}", sql.replace("{}", UUID));
        assert_eq!(table(&sql, 2).await.unwrap().0, names, "{sql}");
    }
    check(&[
        ("select s.k || '!' from (select t.k::varchar from t) s order by 1 limit 1", &["1!"]),
        ("select \"k + 1\" * 2 from (select k + 1 from t) order by 1", &["4", "6", "8"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_in_grouping_sets_is_a_place() {
    let rolled: &[&str] = &["x|1|1", "x|2|1", "x||2", "y|5|1", "y||1", "||3"];
    let of = |groups: &str| {
        format!("select a, b, count(*) from u where a < 'z' group by {groups} order by all")
    };
    for groups in
        ["rollup (1, 2)", "rollup ((1), 2)", "grouping sets ((1, 2), 1, ())", "rollup (a, 2)"]
    {
        check(&[(&of(groups), rolled)]).await;
    }
    check(&[
        (
            "select a, count(*), grouping(a) from u where a < 'z' group by cube (1) order by all",
            &["x|2|0", "y|1|0", "|3|1"],
        ),
        (
            "select count(*), b % 2 = 1 as odd from u where b < 6 group by grouping sets (2, ()) order by all",
            &["1|false", "2|true", "3|"],
        ),
        (
            "select a, b, count(*) from u where a = 'x' group by rollup ((1, 2)) order by all",
            &["x|1|1", "x|2|1", "||2"],
        ),
        ("select a, count(*) from u where a < 'z' group by (1) order by 1", &["x|2", "y|1"]),
        ("select a, b, count(*) from u where a = 'x' group by (1, b) order by all", &["x|1|1", "x|2|1"]),
        // An expression is no place.
        ("select count(*) from t group by rollup (1 + 1) order by 1", &["3", "3"]),
    ])
    .await;
    refused(&[
        ("select a, count(*) from u group by rollup (3)", "not the place of an item"),
        ("select a, count(*) from u group by rollup (0)", "not the place of an item"),
        ("select *, count(*) from u group by cube (1)", "not the place of an item"),
        ("select a, count(*) from u group by a with rollup", "GROUP BY ROLLUP"),
        ("select a, count(*) from u group by all with cube", "GROUP BY CUBE"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinality_is_that_of_lists_alone() {
    refused(&[
        ("select * from t with ordinality", "WITH ORDINALITY"),
        ("select * from t as s, u with ordinality", "WITH ORDINALITY"),
        ("select * from 'x.csv' with ordinality as s(a, n)", "WITH ORDINALITY"),
        ("select * from read_csv('x.csv') with ordinality", "WITH ORDINALITY"),
        ("select k from t where exists (select 1 from u with ordinality)", "ORDINALITY"),
        ("select * from t, lateral count_up(k) with ordinality", "WITH ORDINALITY"),
    ])
    .await;
}
