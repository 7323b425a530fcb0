//! Queries that need a few rows end without reading all files.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use snowmelt_query::{QuerySpec, plan};

use crate::data::write;
use crate::runner::{InProcess, RecordingReporter, answer, located, run};
use crate::shared::Shared;

const FILES: i64 = 30;
const ROWS: i64 = 20_000;

/// Many files with ascending numbers.
static FOLDER: LazyLock<Shared> = LazyLock::new(|| {
    Shared::new("early-ends", |folder| {
        std::fs::create_dir(folder.join("t")).unwrap();
        for file in 0..FILES {
            let numbers = file * ROWS..(file + 1) * ROWS;
            let scattered = numbers.clone().map(|n| n * 7919 % 1_000_003);
            let columns = [
                ("n", Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef),
                ("x", Arc::new(Int64Array::from_iter_values(scattered)) as ArrayRef),
            ];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            write(&folder.join(format!("t/{file:02}.parquet")), &batch, ROWS as usize);
        }
    })
});

fn query(sql: &str, workers: u32) -> QuerySpec {
    let tables = [("t".to_owned(), "t/".to_owned())].into();
    QuerySpec { workers, tables, ..located(sql, FOLDER.path()) }
}

fn count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// The part of the files that a query reads with one worker, whose task ends by itself.
async fn read_part(sql: &str) -> f64 {
    let (batches, profile) = answer(&query(sql, 1), Arc::default()).await.unwrap();
    assert_eq!(count(&batches), 10, "{sql}");
    assert_eq!(profile.stages[0].tasks, 1, "{sql}");
    profile.totals.progress.bytes_read as f64 / profile.totals.bytes_total as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_ends_a_task_before_it_reads_all_files() {
    for sql in [
        "select * from t limit 10",
        "select * from t where x % 3 = 1 limit 10",
        "select n + 1 from t where x % 3 = 1 limit 7 offset 20",
    ] {
        let sql = sql.replace("limit 7", "limit 10");
        let part = read_part(&sql).await;
        assert!(part < 0.2, "{sql}: {part}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_rows_of_an_order_are_found_without_reading_all_files() {
    // The statistics of later files say that they have no such rows.
    for sql in ["select * from t order by n limit 10", "select * from t order by n desc limit 10"] {
        let part = read_part(sql).await;
        assert!(part < 0.5, "{sql}: {part}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_cancels_the_tasks_that_still_run() {
    for sql in ["select * from t limit 10", "select n from t where x % 3 = 1 limit 10 offset 3"] {
        let query = query(sql, 6);
        let planned = plan(&query).await.unwrap();
        // No task ends by itself.
        let runner = Arc::new(InProcess { freeze: (0..6).collect(), ..InProcess::default() });
        let reporter = Arc::new(RecordingReporter::default());
        let mut answer =
            run(planned, &query, Arc::clone(&runner), Arc::clone(&reporter)).await.unwrap();
        let collected = tokio::time::timeout(Duration::from_secs(60), answer.collect()).await;
        assert_eq!(count(&collected.expect("it waits for frozen tasks").unwrap()), 10);
        assert_eq!(reporter.last.lock().unwrap().done, 0);
        while runner.active.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        while runner.ended.load(Ordering::SeqCst) < runner.attempts.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(answer.finish().rows, 10);
    }
}
