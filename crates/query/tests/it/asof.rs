//! ASOF JOIN: each row with the nearest row of another table. The answers are DuckDB's.

use crate::everyday::{check, table};
use crate::runner::{refusal, spec};

/// Rows with equal times, without keys and without times on both sides; a value of `p` is null.
const TABLES: &str = "with t(k, w) as (values ('a', 3), ('a', 1), ('a', 3), ('b', 5), (null, 4), ('a', null), ('c', 0)),
    p(k, w, v) as (values ('a', 1, 'x'), ('a', 2, null), ('b', 9, 'z'), ('a', null, 'n'), (null, 1, 'q'), ('c', 0, 'e')) ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_row_has_the_nearest_row() {
    for (sql, expected) in [
        (
            "select * from t asof join p on t.k = p.k and t.w >= p.w order by all",
            &["a|1|a|1|x", "a|3|a|2|", "a|3|a|2|", "c|0|c|0|e"][..],
        ),
        (
            "select * from t asof left join p on p.w <= t.w and p.k = t.k order by all",
            &["a|1|a|1|x", "a|3|a|2|", "a|3|a|2|", "a||||", "b|5|||", "c|0|c|0|e", "|4|||"],
        ),
        (
            "select t.w, p.w from t asof inner join p on t.k = p.k and t.w > p.w order by all",
            &["3|2", "3|2"],
        ),
        (
            "select t.w, p.w from t asof join p on t.k = p.k and t.w <= p.w order by all",
            &["0|0", "1|1", "5|9"],
        ),
        (
            "select t.w, p.w from t asof left join p on t.k = p.k and t.w < p.w order by all",
            &["0|", "1|2", "3|", "3|", "4|", "5|9", "|"],
        ),
        // The key of USING is that of the left side, and its last name the time.
        (
            "select * from t asof left join p using (k, w) order by all",
            &["a|1|x", "a|3|", "a|3|", "a||", "b|5|", "c|0|e", "|4|"],
        ),
        ("select k, v from t asof join p using (k, w) where w < 2 order by 1", &["a|x", "c|e"]),
        (
            "select t.k, count(*), max(p.w) from t asof join p on t.k = p.k and t.w >= p.w
             group by all order by all",
            &["a|3|2", "c|1|0"],
        ),
        (
            "select a.w, b.v, c.w from t a asof join p b on a.k = b.k and a.w >= b.w
             asof left join p c on a.k = c.k and a.w < c.w order by all",
            &["0|e|", "1|x|2", "3||", "3||"],
        ),
        (
            "select w from t where exists (select 1 from t u asof join p on u.w > p.w
             where u.k = t.k) order by all",
            &["1", "3", "3", "5", ""],
        ),
        // Of different types.
        (
            "select t.w, p.w from t asof join (values (1.5), (2.5)) p(w) on t.w >= p.w order by all",
            &["3|2.5", "3|2.5", "4|2.5", "5|2.5"],
        ),
    ] {
        for workers in [1, 3] {
            let found = table(&format!("{TABLES}{sql}"), workers).await;
            assert_eq!(found.unwrap().1, expected, "{sql}");
        }
    }
}

/// One right row for each left row, of rows that are spread over workers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_several_workers_meet() {
    let slow = "select count(*), sum(o_orderkey), sum(found) from (select o_orderkey,
        (select max(l_orderkey) from lineitem where l_shipdate <= o_orderdate and l_suppkey = o_custkey) as found
        from orders) where found is not null";
    let fast = "select count(*), sum(o_orderkey), sum(l_orderkey) from orders
        asof join (select l_suppkey, l_shipdate, max(l_orderkey) as l_orderkey
                   from (select l_suppkey, l_shipdate, max(l_orderkey)
                             over (partition by l_suppkey order by l_shipdate) as l_orderkey from lineitem)
                   group by all) on l_suppkey = o_custkey and l_shipdate <= o_orderdate";
    assert_eq!(table(fast, 4).await.unwrap().1, table(slow, 1).await.unwrap().1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_forms_are_refused() {
    check(&[("select asof, global from (values (1, 2)) v(asof, global)", &["1|2"])]).await;
    for (sql, part) in [
        ("select 1 from t asof right join p on t.w >= p.w", "inner and left joins"),
        ("select 1 from t asof join p on t.k = p.k", "needs one comparison"),
        ("select 1 from t asof join p on t.w >= p.w and t.w < p.w", "needs one comparison"),
        ("select 1 from t asof join p on t.w >= p.w and p.v like 'x'", "takes equalities"),
        ("select 1 from t asof join p on t.w + p.w >= 1", "compares expressions of its left side"),
        ("select 1 from t asof join p using (w)", "USING with a key and a time"),
        ("select 1 from t asof join p", "needs ON"),
    ] {
        let report = refusal(&spec(&format!("{TABLES}{sql}"), 1)).await;
        assert!(report.contains(part) && report.contains("SM-0101"), "{sql}: {report}");
    }
}
