//! Operators that do not fit into memory: sorts of many first rows, windows, what is merged.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use snowmelt_query::QuerySpec;

use crate::data::write;
use crate::join_memory::rows;
use crate::runner::{InProcess, answer, failure, located};
use crate::shared::Shared;

/// Enough for some batches, and too little for the rows of a task.
const LITTLE: u64 = 4 << 20;

const ROWS: i64 = 200_000;

/// `t` has numbers in no order, some of them null, and a text of 20 characters.
static FOLDER: LazyLock<Shared> = LazyLock::new(|| {
    Shared::new("scratch", |folder| {
        std::fs::create_dir(folder.join("t")).unwrap();
        for file in 0..4 {
            let rows = || (0..ROWS).filter(move |row| row % 4 == file);
            let key = |row: i64| row * 7919 % ROWS;
            let some = |row: i64| Some(key(row)).filter(|_| row % 1_000 != 7);
            let text = rows().map(|row| format!("a text of number {}", row % 1_000));
            let columns: [(&str, ArrayRef, bool); 4] = [
                ("k", Arc::new(Int64Array::from_iter_values(rows().map(key))), false),
                ("n", Arc::new(rows().map(some).collect::<Int64Array>()), true),
                ("v", Arc::new(Int64Array::from_iter_values(rows())), false),
                ("s", Arc::new(StringArray::from_iter_values(text)), false),
            ];
            let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            write(&folder.join(format!("t/{file}.parquet")), &batch, 50_000);
        }
    })
});

fn query(sql: &str) -> QuerySpec {
    let tables = [("t".to_owned(), "t/".to_owned())].into();
    QuerySpec { workers: 1, tables, ..located(sql, FOLDER.path()) }
}

/// What DataFusion gives by itself.
async fn plain(sql: &str) -> String {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let folder = FOLDER.path().join("t");
    let options = ParquetReadOptions::default();
    session.register_parquet("t", folder.to_str().unwrap(), options).await.unwrap();
    rows(&session.sql(sql).await.unwrap().collect().await.unwrap())
}

fn little() -> InProcess {
    InProcess { memory_bytes: LITTLE, ..InProcess::default() }
}

/// Runs a query with little memory; it uses scratch.
async fn check(sql: &str) {
    let spec = query(sql);
    let expected = plain(sql).await;
    let (enough, profile) = answer(&spec, Arc::default()).await.unwrap();
    assert_eq!(profile.totals.progress.spilled_bytes, 0, "{sql}");
    assert_eq!(rows(&enough), expected, "{sql}");
    let (found, profile) = answer(&spec, Arc::new(little())).await.unwrap();
    assert_eq!(rows(&found), expected, "{sql}");
    assert!(profile.totals.progress.spilled_bytes > 0, "{sql}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_many_sorted_rows_spill() {
    for sql in [
        "select * from t order by v limit 3 offset 150000",
        "select * from t order by n desc nulls last, s, v limit 3 offset 150000",
        "select k, s from t order by s, k desc limit 2 offset 120000",
    ] {
        check(sql).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_over_all_rows_of_a_partition_spill() {
    let of = |windows: &str| format!("select * from (select k, {windows} from t) order by k");
    let sums = |windows: &str| {
        format!(
            "select count(*), sum(a), count(b), max(b), sum(k) from (select k, {windows} from t)"
        )
    };
    for sql in [
        sums("sum(n) over () a, max(s) over () b"),
        sums("count(n) over (partition by k % 3) a, min(s) over (partition by k % 3) b"),
        // One partition has nearly all rows, and the others have few.
        sums(
            "sum(v) over (partition by greatest(k, 190000)) a, max(s) over (partition by greatest(k, 190000)) b",
        ),
        format!("{} limit 5 offset 1000", of("count(*) over (partition by nullif(k % 2, 0)) c")),
        "select count(*), sum(c) from (select count(*) over () c from t)".to_owned(),
    ] {
        check(&sql).await;
    }
}

/// A window that needs all rows of its partition, in partitions that fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_are_given_on_partition_by_partition() {
    let of = |window: &str| {
        format!(
            "select count(*), sum(a), sum(k) from (select k, {window} over (partition by k % 5000 order by v) a from t)"
        )
    };
    for function in ["ntile(3)", "last_value(v)", "sum(v)"] {
        let frame = if function == "ntile(3)" {
            ""
        } else {
            " rows between 1 preceding and unbounded following"
        };
        let sql = of(function).replace("order by v)", &format!("order by v{frame})"));
        check(&sql).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_needs_all_rows_at_once_is_refused() {
    let sql = "select max(a) from (select ntile(7) over (order by v) a from t)";
    let report = failure(&query(sql), little()).await;
    assert!(report.contains("SM-0402") && report.contains("WindowAggExec"), "{report}");
    assert!(report.contains("--memory"), "{report}");
}
