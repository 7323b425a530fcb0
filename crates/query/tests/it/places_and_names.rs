//! What names and numbers in ORDER BY and GROUP BY stand for: columns of the tables, or items of the
//! SELECT. Each expected answer is PostgreSQL's, and DuckDB's where PostgreSQL refuses the query.

use crate::everyday::{TABLES, table};

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
