//! Window functions with properties that DataFusion's plan codec drops. With one worker the table
//! has one partition, and everything that can be encoded goes to the worker.

use snowmelt_query::plan;

use crate::answers::check;
use crate::runner::spec;

/// The window functions under test, used with `over (...)`.
const FUNCTIONS: &[&str] = &[
    "sum(n) filter (where n > 50)",
    "count(*) filter (where yes)",
    "count(s) filter (where s like '%1%')",
    "avg(x) filter (where not yes)",
    "min(small) filter (where id > 9990)",
    "first_value(n)",
    "first_value(n) ignore nulls",
    "last_value(n) ignore nulls",
    "nth_value(n, 2) ignore nulls",
    "nth_value(n, 3)",
    "lag(n) ignore nulls",
    "lead(n, 2) ignore nulls",
    "lag(n, 2, -7)",
    "sum(distinct small)",
    "count(distinct word) filter (where yes)",
    "row_number()",
    "ntile(7)",
    "percent_rank()",
];

const OVER: &[&str] = &[
    "(order by id)",
    "(partition by word order by id desc)",
    "(order by id rows between 3 preceding and 2 following)",
    "(partition by word order by id rows between current row and unbounded following)",
    "(order by id rows between unbounded preceding and unbounded following)",
    "(partition by word order by id rows between unbounded preceding and unbounded following)",
];

/// Functions of a whole partition: DataFusion would exchange rows between workers for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_without_an_order_need_no_exchange() {
    for function in ["sum(n)", "count(*)", "max(s)", "sum(n) filter (where yes)"] {
        let sql = format!(
            "select id, word, {function} over (partition by word) v from odd order by id limit 300"
        );
        check(&sql, true).await;
    }
    check(
        "select l_shipmode, max(s) from (select l_shipmode, sum(l_quantity) over (partition by l_shipmode) s from lineitem) group by 1 order by 1",
        true,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_and_ignore_nulls_of_windows_are_preserved() {
    for over in OVER {
        for function in FUNCTIONS {
            let sql = format!("select id, {function} over {over} v from odd order by id limit 300");
            // DataFusion has no accumulator for these.
            if function.contains("distinct") && over.contains("preceding and 2") {
                continue;
            }
            check(&sql, true).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_numbered_from_one_in_each_partition() {
    for over in [
        "(order by s, id)",
        "(partition by word order by x desc, id)",
        "(partition by s, yes order by id desc)",
        "(partition by id order by n)",
    ] {
        let sql = format!("select id, row_number() over {over} v from odd order by id");
        check(&sql, true).await;
    }
    check(
        "select id, row_number() over w a, rank() over w b, sum(id) over w c from odd
         window w as (partition by word order by id) order by id",
        true,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_windows_in_one_query() {
    check(
        "select id, sum(n) filter (where yes) over w a, sum(n) over w b, lag(n) ignore nulls over w c,
         lag(n) over w d from odd where id < 500 window w as (partition by word order by id) order by id",
        true,
    )
    .await;
}

#[tokio::test]
async fn only_windows_that_the_codec_would_change_stay_with_the_driver() {
    let whole = |function: &str| format!("select id, {function} over (order by id) from odd");
    for (function, sent) in [
        ("sum(n)", true),
        ("row_number()", true),
        ("lag(n, 2, -7)", true),
        ("first_value(n)", true),
        ("sum(n) filter (where yes)", false),
        ("first_value(n) ignore nulls", false),
        ("lag(n) ignore nulls", false),
    ] {
        let planned = plan(&spec(&whole(function), 1)).await.unwrap();
        let on_worker = planned.worker_plan().contains("WindowAggExec");
        assert_eq!(on_worker, sent, "{function}\n{}", planned.worker_plan());
        assert!(planned.worker_plan().contains("ParquetScan"), "{function}");
    }
}
