//! Exchanges by objects (Lambada 4.4): the same answers as by files, with the requests of the
//! paper's Table 2, counted at the store.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::pretty::pretty_format_batches;
use snowmelt_api::Profile;
use snowmelt_execute::exchange::ObjectExchange;
use snowmelt_query::{QuerySpec, plan};
use snowmelt_types::Report;
use snowmelt_wire::{ExchangeOptions, MediumChoice};

use crate::data;
use crate::runner::{InProcess, RecordingReporter, answer, located, refusal, run, spec};
use crate::small_s3::{Requests, SmallS3};

const JOIN: &str = "select o_orderpriority, count(*), sum(l_quantity), min(l_comment)
    from lineitem join orders on l_orderkey = o_orderkey group by 1 order by 1";

/// A query that exchanges by objects.
fn by_objects(query: QuerySpec, store: &SmallS3, levels: u32, combining: bool) -> QuerySpec {
    let exchange = ExchangeOptions {
        medium: MediumChoice::Objects,
        locations: vec!["s3://b/".to_owned(), "s3://b/x/".to_owned()],
        levels,
        combining,
        ..ExchangeOptions::default()
    };
    QuerySpec { exchange, aws: store.variables(), ..query }
}

/// Runs a query as a driver does; gives its rows, and removes its objects.
async fn rows(query: &QuerySpec, runner: InProcess) -> snowmelt_query::Result<(String, Profile)> {
    let asked = query.clone();
    let planned = tokio::spawn(async move { plan(&asked).await }).await.unwrap()?;
    let cleaner = planned.cleaner();
    let answered = async {
        let reporter = Arc::new(RecordingReporter::default());
        let mut answer = run(planned, query, Arc::new(runner), reporter).await?;
        let batches = answer.collect().await?;
        Ok((text(&batches), answer.finish()))
    };
    let answered = answered.await;
    if let Some(cleaner) = cleaner {
        let cleaned = cleaner.clean().await;
        assert!(cleaned.is_ok() || answered.is_err(), "{cleaned:?}");
    }
    answered
}

fn text(batches: &[RecordBatch]) -> String {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let mut lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    lines.sort_unstable();
    lines.join("\n")
}

async fn by_files(sql: &str, workers: u32) -> String {
    let (batches, _) = answer(&spec(sql, workers), Arc::default()).await.unwrap();
    text(&batches)
}

/// A table with one row group for each of so many tasks, in which all keys differ. The keys look
/// random, so that all row groups have the same size.
fn keys(folder: &std::path::Path, tasks: i64) {
    let key = |row: i64| row.wrapping_mul(0x1E37_79B9_7F4A_7C15);
    let rows = Int64Array::from_iter_values((0..tasks * 2_000).map(key));
    let batch = RecordBatch::try_from_iter([("k", Arc::new(rows) as ArrayRef)]).unwrap();
    data::write(&folder.join("keys.parquet"), &batch, 2_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_files_with_all_levels_and_combining() {
    let tpch = crate::joins::tpch();
    let some = ["q03", "q09", "q13", "q18", "q21", "q3", "q9"];
    let mut queries: Vec<&str> = vec![JOIN];
    queries.extend(
        tpch.iter().filter(|(name, _)| some.contains(&name.as_str())).map(|query| &*query.1),
    );
    assert!(queries.len() > 4, "{:?}", tpch.iter().map(|query| &query.0).collect::<Vec<_>>());
    let store = SmallS3::start();
    for sql in queries {
        let expected = by_files(sql, 5).await;
        for (levels, combining) in
            [(1, true), (1, false), (2, true), (2, false), (3, true), (3, false)]
        {
            let query = by_objects(spec(sql, 5), &store, levels, combining);
            let (found, profile) = rows(&query, InProcess::default()).await.unwrap();
            assert_eq!(found, expected, "{levels} {combining}: {sql}");
            assert!(profile.totals.progress.exchange_writes > 0);
        }
        assert!(store.keys().is_empty(), "{:?}", store.keys());
    }
}

/// Groups all keys of a table with one row group for each of so many tasks, and checks that the
/// store got these reads and writes, and that the profile counts the same. Each key is read once.
async fn assert_requests(tasks: u32, levels: u32, combining: bool, reads: u64, writes: u64) {
    let folder = tempfile::tempdir().unwrap();
    keys(folder.path(), tasks.into());
    let sql = "select k, count(*) from 'keys.parquet' group by k";
    let query = QuerySpec { workers: tasks, ..located(sql, folder.path()) };
    let store = SmallS3::start();
    let query = by_objects(query, &store, levels, combining);
    let (_, profile) = rows(&query, InProcess::default()).await.unwrap();
    let what = format!("{tasks} tasks, {levels} levels, combining: {combining}");
    assert_eq!(profile.rows, u64::from(tasks) * 2_000, "{what}");
    let found = store.requests();
    let counted = &profile.totals.progress;
    assert_eq!((found.reads, found.writes), (reads, writes), "{what}");
    assert_eq!((counted.exchange_reads, counted.exchange_writes), (reads, writes), "{what}");
    assert_eq!(counted.exchange_bytes_read, counted.exchange_bytes_written, "{what}");
    assert!(store.keys().is_empty(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_those_of_table_2() {
    for (tasks, side, levels) in
        [(4, 4, 1), (4, 2, 2), (9, 9, 1), (9, 3, 2), (16, 4, 2), (27, 27, 1), (27, 3, 3)]
    {
        let reads = u64::from(levels * tasks * side);
        assert_requests(tasks, levels, true, reads, u64::from(levels * tasks)).await;
        assert_requests(tasks, levels, false, reads, reads).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_other_numbers_of_partitions_are_those_of_the_model() {
    for (tasks, levels) in [(5, 2), (7, 2), (10, 2), (11, 3)] {
        for combining in [true, false] {
            let expected = ObjectExchange { levels, combining }.requests(tasks);
            assert_requests(tasks, levels, combining, expected.reads, expected.writes).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_store_and_objects_that_appear_late_change_no_answer() {
    let expected = by_files(JOIN, 3).await;
    let store = SmallS3::start();
    store.busy(20);
    store.late();
    let query = by_objects(spec(JOIN, 3), &store, 2, true);
    assert_eq!(rows(&query, InProcess::default()).await.unwrap().0, expected);
    assert!(store.keys().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_are_removed_are_made_again() {
    let expected = by_files(JOIN, 3).await;
    for (levels, combining, removed) in [(1, true, 1), (2, false, 2)] {
        let store = SmallS3::start();
        store.remove_before_reading(removed);
        let query = by_objects(spec(JOIN, 3), &store, levels, combining);
        let (found, profile) = rows(&query, InProcess::default()).await.unwrap();
        assert_eq!(found, expected);
        let remakes: u32 = profile.stages.iter().map(|stage| stage.remakes).sum();
        // The task that wrote it, and the one that was to read it.
        assert!(remakes >= 2, "{:?}", profile.stages);
        let discarded = profile.stages.iter().flat_map(|stage| &stage.discarded);
        assert!(
            discarded.clone().any(|discarded| discarded.why == "inputs lost"),
            "{:?}",
            profile.stages
        );
        assert!(store.keys().is_empty(), "{:?}", store.keys());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_objects_of_lost_attempts_are_not_read() {
    let expected = by_files(JOIN, 3).await;
    let store = SmallS3::start();
    for (levels, combining) in [(1, true), (2, false)] {
        let query = by_objects(spec(JOIN, 3), &store, levels, combining);
        let runner = InProcess { lose: 1, lose_late: true, ..InProcess::default() };
        assert_eq!(rows(&query, runner).await.unwrap().0, expected);
        assert!(store.keys().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_bucket_and_one_that_cannot_be_written_are_named() {
    let store = SmallS3::start();
    let mut query = by_objects(spec(JOIN, 3), &store, 1, true);
    query.exchange.locations = vec!["s3://missing/x/".to_owned()];
    let report = rows(&query, InProcess::default()).await.unwrap_err().report().to_string();
    assert!(report.contains("SM-0105") && report.contains("s3://missing/x/"), "{report}");
    store.read_only();
    let query = by_objects(spec(JOIN, 3), &store, 1, true);
    let report = rows(&query, InProcess::default()).await.unwrap_err().report().to_string();
    assert!(report.contains("SM-0117") && report.contains("no write permission"), "{report}");
    assert!(store.keys().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_another_query_stay_and_those_of_a_dead_one_are_removed() {
    let store = SmallS3::start();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let recent = format!("x/snowmelt-exchange/{now}-q-other/0/1.0/0");
    store.put(&recent);
    store.put(&format!("snowmelt-exchange/{}-q-dead/0/1.0/0", now - 72 * 3600));
    rows(&by_objects(spec(JOIN, 2), &store, 1, true), InProcess::default()).await.unwrap();
    assert_eq!(store.keys(), [recent]);
}

#[tokio::test]
async fn the_plan_names_the_medium_of_each_exchange() {
    let store = SmallS3::start();
    let text = |levels, combining| {
        let query = by_objects(spec(JOIN, 4), &store, levels, combining);
        async move { plan(&query).await.unwrap().worker_plan().to_owned() }
    };
    let plan = text(1, true).await;
    assert!(plan.contains("exchange by objects (1 level, combined) for stage 1"), "{plan}");
    let plan = text(2, false).await;
    for level in
        ["level 1 of 2, not combined) for stage 1", "level 2 of 2, not combined) for stage 2"]
    {
        assert!(plan.contains(level), "{plan}");
    }
    assert_eq!(store.requests(), Requests::default());
}

#[tokio::test]
async fn objects_without_a_location_are_refused() {
    let store = SmallS3::start();
    let mut query = by_objects(spec(JOIN, 4), &store, 1, true);
    query.exchange.locations.clear();
    let report = refusal(&query).await;
    assert!(report.contains("SM-0110") && report.contains("--exchange-location"), "{report}");
}
