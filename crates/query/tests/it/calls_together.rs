//! Projections that call several functions: one round trip for all of them.

use crate::runner::{InProcess, failure, spec};
use crate::udfs::text;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_functions_compute_at_the_same_time() {
    // One worker: the calls of two would meet each other.
    for sql in [
        "select sum(a + b) from (select meets_one(id) a, meets_other(n + 1) + 1 b from odd) t",
        "select sum(meets_one(id)) + sum(meets_other(n + 1) + 1) from odd where n is not null",
        "select sum(c) from (select add_up(meets_one(id), meets_other(n + 1)) + 1 c from odd) t",
    ] {
        let plain = sql.replace("meets_one(id)", "2 * id").replace("meets_other(", "2 * (");
        let plain = plain.replace("add_up(2 * id, 2 * (n + 1))", "2 * id + 2 * (n + 1)");
        let (found, rows) = text(sql, 1).await;
        let (expected, _) = text(&plain, 1).await;
        let cell = |text: &str| text.lines().nth(3).unwrap().replace([' ', '|'], "");
        assert_eq!(cell(&found), cell(&expected), "{sql}");
        assert_eq!(rows["meets_one"], rows["meets_other"], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_a_row_may_not_need_are_not_made_together() {
    let (_, rows) = text(
        "select case when double_it(id) < 10 then pure_double(id) else 0 end a,
                double_it(id) > 10 or pure_double(id + 1) > 4 b from odd where id < 100",
        1,
    )
    .await;
    assert_eq!(rows["double_it"], 100);
    assert!(rows["pure_double"] < 100, "{rows:?}");
    let together = "select double_it(id) a, add_up(id, n) b, shout(word) c from odd";
    let planned = snowmelt_query::plan(&spec(together, 2)).await.unwrap();
    assert!(planned.worker_plan().contains(", calls together"), "{}", planned.worker_plan());
    let alone = "select double_it(id) a, double_it(n) b, one() c from odd";
    let planned = snowmelt_query::plan(&spec(alone, 2)).await.unwrap();
    assert!(!planned.worker_plan().contains("calls together"), "{}", planned.worker_plan());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_one_of_several_functions_is_that_of_the_query() {
    let sql = "select sum(a + b) from (select double_it(id) a, fails_at_88(id) b from odd) t";
    let report = failure(&spec(sql, 1), InProcess::default()).await;
    assert!(report.starts_with("error[SM-0201]: `fails_at_88` failed in 1 of"), "{report}");
}
