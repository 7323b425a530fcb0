//! Clauses and aggregates of DuckDB and PostgreSQL that take several values or frames. Each expected
//! answer is DuckDB's, and PostgreSQL's where they differ.

use crate::everyday::{TABLES, check, table};

async fn check_refusals(cases: &[(&str, &str)]) {
    for (sql, part) in cases {
        let report = match table(&format!("{TABLES}{sql}"), 2).await {
            Ok((_, rows)) => panic!("{sql} gives {rows:?}"),
            Err(report) => report,
        };
        assert!(report.contains(part), "{sql}: {report}");
        assert!(!report.contains(" {") && !report.contains("Utf8"), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_in_either_order() {
    check(&[
        (
            "select 5 between symmetric 10 and 1, 5 not between symmetric 10 and 1, 0 between asymmetric 1 and 0",
            &["true|false|false"],
        ),
        (
            "select 0 between symmetric null and 1, 5 between symmetric 1 and null, 1 not between asymmetric 2 and 3",
            &["||true"],
        ),
        ("select k from t where k between symmetric 3 and 2 and k <> 2", &["3"]),
    ])
    .await;
    let (names, _) = table("select 1 between symmetric 2 and 0", 1).await.unwrap();
    assert_eq!(names, "1 BETWEEN SYMMETRIC 2 AND 0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uuids_are_texts_of_one_form() {
    const UUID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    check(&[
        ("select 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid, cast('{a0eebc999c0b4ef8bb6d6bb9bd380a11}' as uuid)",
            &[&format!("{UUID}|{UUID}")]),
        ("select uuid 'A0EEBC999C0B4EF8BB6D6BB9BD380A11', try_cast(a as uuid), null::uuid from u where b = 1",
            &[&format!("{UUID}||")]),
        ("select count(*) from u where try_cast(a as uuid) is null", &["5"]),
        ("select length(gen_random_uuid()::uuid)", &["36"]),
    ])
    .await;
    check_refusals(&[
        ("select a::uuid from u", "`x` is no UUID"),
        ("select 'a0eebc99'::uuid", "`a0eebc99` is no UUID"),
        ("select k::uuid from t", "Cannot convert BIGINT to a UUID"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_rows() {
    const V: &str = "(values (1, 2, 3), (1, 2, 4)) v(a, b, c)";
    for (sql, expected) in [
        (
            "select a, b, c, count(*) from {} group by rollup((a, b), c) order by all",
            &["1|2|3|1", "1|2|4|1", "1|2||2", "|||2"][..],
        ),
        (
            "select a, b, c, count(*), grouping(a) from {} group by cube((a, b), c) order by all",
            &["1|2|3|1|0", "1|2|4|1|0", "1|2||2|0", "||3|1|1", "||4|1|1", "|||2|1"],
        ),
        (
            "select a, c, count(*) from {} group by a, rollup((b, c), (c, b)) order by all",
            &["1|3|1", "1|3|1", "1|4|1", "1|4|1", "1||2"],
        ),
    ] {
        for workers in [1, 3] {
            let sql = sql.replace("{}", V);
            assert_eq!(table(&sql, workers).await.unwrap().1, expected, "{sql}");
        }
    }
}
