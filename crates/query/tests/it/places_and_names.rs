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
