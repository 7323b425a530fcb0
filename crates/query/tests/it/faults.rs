//! Lost workers, insufficient memory, cancelled queries.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use snowmelt_query::{QueryAnswer, RunOptions, plan};

use crate::runner::{InProcess, RecordingReporter, answer, failure, run, spec};

const SQL: &str =
    "select l_shipmode, count(*), sum(l_quantity) from lineitem group by 1 order by 1";

async fn expected() -> String {
    let (batches, _) = answer(&spec(SQL, 3), Arc::default()).await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_lost_worker_is_retried_with_the_same_answer() {
    let expected = expected().await;
    for lose_late in [false, true] {
        let runner = Arc::new(InProcess { lose: 2, lose_late, ..InProcess::default() });
        let reporter = Arc::new(RecordingReporter::default());
        let query = spec(SQL, 3);
        let planned = plan(&query).await.unwrap();
        let mut answer =
            run(planned, &query, Arc::clone(&runner), Arc::clone(&reporter)).await.unwrap();
        let found = pretty_format_batches(&answer.collect().await.unwrap()).unwrap().to_string();
        assert_eq!(found, expected);
        let profile = answer.finish();
        // Scans and the stage that reads them.
        let tasks = profile.totals.tasks;
        assert_eq!(tasks, 6);
        assert_eq!(runner.attempts.load(Ordering::SeqCst), 3 * tasks);
        assert_eq!(reporter.notes.lock().unwrap().len(), 2 * tasks as usize);
        assert!(profile.lanes.iter().all(|lane| lane.retries == 2));
        assert!(profile.findings.iter().any(|finding| finding.title.contains("lost")));
        let last = *reporter.last.lock().unwrap();
        assert_eq!((last.done, last.running), (tasks, 0));
        assert_eq!(last.rows, profile.totals.progress.rows_read);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_streamed_before_their_task_is_complete() {
    let query = spec("select l_orderkey from lineitem where l_quantity < 30", 2);
    let planned = plan(&query).await.unwrap();
    let tasks = planned.tasks().unwrap().len() as u32;
    let release = Arc::new(tokio::sync::Semaphore::new(0));
    let runner = InProcess { release: Some(Arc::clone(&release)), ..InProcess::default() };
    let reporter = Arc::new(RecordingReporter::default());
    let mut answer = run(planned, &query, Arc::new(runner), Arc::clone(&reporter)).await.unwrap();
    // No task can end before it is released.
    assert!(answer.next().await.unwrap().unwrap().num_rows() > 0);
    assert_eq!(reporter.last.lock().unwrap().done, 0);
    release.add_permits(tasks as usize);
    answer.collect().await.unwrap();
    assert_eq!(reporter.last.lock().unwrap().done, tasks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamed_rows_are_not_repeated_after_a_retry() {
    let query = spec("select l_orderkey, l_linenumber from lineitem where l_quantity < 30", 2);
    let sorted = |batches: &[RecordBatch]| {
        let text = pretty_format_batches(batches).unwrap().to_string();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (expected, _) = answer(&query, Arc::default()).await.unwrap();
    let lossy = InProcess { lose: 2, lose_late: true, ..InProcess::default() };
    let (found, profile) = answer(&query, Arc::new(lossy)).await.unwrap();
    assert!(profile.lanes.iter().all(|lane| lane.retries == 2));
    assert_eq!(sorted(&found), sorted(&expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_always_lost_fails_the_query() {
    let report = failure(&spec(SQL, 2), InProcess { lose: 9, ..InProcess::default() }).await;
    assert!(report.contains("SM-0401") && report.contains("3 times"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_out_of_memory_reports_limit_and_option() {
    let sql = "select l_comment, l_orderkey, count(*) from lineitem group by 1, 2";
    let runner = InProcess { memory_bytes: 1 << 20, ..InProcess::default() };
    let report = failure(&spec(sql, 1), runner).await;
    assert!(report.contains("SM-0402") && report.contains("limit 1 MiB"), "{report}");
    assert!(report.contains("--memory"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_out_of_memory_reports_limit_and_option() {
    let query = spec("select array_agg(l_comment) from lineitem", 2);
    let planned = plan(&query).await.unwrap();
    let options = RunOptions { memory_bytes: 100_000, ..RunOptions::default() };
    let runner = Arc::new(InProcess::default());
    let mut answer =
        QueryAnswer::start(planned, runner, Arc::new(RecordingReporter::default()), options)
            .await
            .unwrap();
    let error = answer.collect().await.unwrap_err();
    let report = snowmelt_types::Report::report(&error).to_string();
    assert!(report.contains("SM-0111") && report.contains("--memory"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_query_ends_its_workers() {
    // The UDF never returns, so the query can only end by being dropped.
    let query = spec("select count(sleeps(id)) from odd", 2);
    let planned = plan(&query).await.unwrap();
    let tasks = planned.tasks().unwrap().len() as u32;
    let runner = Arc::new(InProcess::default());
    let running = run(planned, &query, Arc::clone(&runner), Arc::new(RecordingReporter::default()));
    let mut answer = running.await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), answer.next()).await.is_err());
    drop(answer);
    // Each worker that was started ends, long before the UDF's limit of ten minutes.
    assert_eq!(runner.attempts.load(Ordering::SeqCst), tasks);
    while runner.ended.load(Ordering::SeqCst) < tasks {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_division_by_zero_fails_the_query() {
    let sql = "select sum(1 / (l_orderkey - l_orderkey)) from lineitem";
    let report = failure(&spec(sql, 2), InProcess::default()).await;
    assert!(report.contains("SM-0109"), "{report}");
}
