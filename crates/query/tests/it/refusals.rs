//! Unsupported queries are refused by name; errors in the SQL are shown with their position.

use crate::runner::{InProcess, failure, refusal, spec};

async fn expect(sql: &str, parts: &[&str]) {
    let report = refusal(&spec(sql, 2)).await;
    for part in parts {
        assert!(report.contains(part), "{sql}\n{report}\nlacks {part}");
    }
}

#[tokio::test]
async fn a_syntax_error_has_a_caret() {
    expect("selct 1", &["SM-0101", "--> query:1", "selct 1\n   |  ^"]).await;
    expect(
        "select l_orderkey\nfrom lineitem\nwhere where x",
        &["SM-0101", "--> query:3", "where where x\n   |              ^"],
    )
    .await;
    expect("select (1 + ", &["SM-0101", "EOF"]).await;
    expect("select l_tax, count(*) from lineitem", &["SM-0101", "GROUP BY"]).await;
}

#[tokio::test]
async fn unknown_names_have_suggestions() {
    expect(
        "select l_quantitty from lineitem",
        &["SM-0102", "no column `l_quantitty`", "did you mean `l_quantity`?", "\n   |         ^"],
    )
    .await;
    expect("select zzz from nation", &["SM-0102", "the columns are n_nationkey, n_name"]).await;
    expect("select x.n_name from nation n", &["SM-0102", "no table `x`"]).await;
    expect("select * from linitem", &["SM-0102", "no table `linitem`", "\n   |                ^"])
        .await;
    expect("select * from (select 1 a) t, wrong", &["SM-0102", "no table `wrong`"]).await;
    expect(
        "select sume(l_tax) from lineitem",
        &["SM-0102", "no function `sume`", "did you mean `sum`", "\n   |         ^"],
    )
    .await;
    expect("select shuot(s) from odd", &["SM-0102", "did you mean `shout`"]).await;
    expect(
        "select 1 as a, 2 as a order by a",
        &["SM-0102", "two columns", "the name `a`", "AS name"],
    )
    .await;
    expect("select n_name from nation a where n_name = b.c", &["SM-0102", "no table `b`"]).await;
}

#[tokio::test]
async fn type_errors_are_reported() {
    expect("select l_shipdate + 'x' * 2 from lineitem", &["SM-010"]).await;
    expect(
        "select sum(n_name) from nation",
        &["SM-0103", "`sum` takes DECIMAL or", "but the query gives VARCHAR"],
    )
    .await;
    expect("select cast('x' as int)", &["SM-0103"]).await;
    expect("select n_name from nation union all select 1, 2", &["SM-010"]).await;
}

#[tokio::test]
async fn statements_that_write_are_refused() {
    for sql in ["drop table nation", "insert into nation values (1)", "create view v as select 1"] {
        expect(sql, &["SM-0101", "not allowed", "write one SELECT"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subquery_that_is_used_as_a_value_has_at_most_one_row() {
    for sql in [
        "select n_name from nation where n_regionkey > (select n_nationkey from nation)",
        "select (select l_tax from lineitem where l_orderkey < 3)",
        "select id from odd where n = (select n from odd where n is null)",
    ] {
        for workers in [1, 3] {
            let report = failure(&spec(sql, workers), InProcess::default()).await;
            assert!(report.contains("SM-0109") && report.contains("more than one row"), "{report}");
        }
    }
}

/// The names that DataFusion gives subqueries are in no message.
#[tokio::test]
async fn a_subquery_that_cannot_be_a_join_is_refused_in_words_of_the_user() {
    let sql = "select count(*) from orders o where (o_orderkey, o_custkey) in
        (select l_orderkey, l_suppkey from lineitem l where l.l_linenumber < o.o_shippriority)";
    expect(sql, &["SM-0107", "refers to the outer query", "write it as a join"]).await;
}
