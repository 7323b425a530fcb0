//! The requests that a scan of Parquet files on S3 needs.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use async_trait::async_trait;
use bytes::Bytes;
use snowmelt_api::Profile;
use snowmelt_query::{HostFiles, LocalFiles, QuerySpec, plan};
use snowmelt_wire::{LocalFile, ScanCounts};

use crate::data::write;
use crate::runner::{answer, run_failure, spec};
use crate::small_s3::SmallS3;

/// A file with `groups` row groups of 100 rows, the first of which has the numbers from `from` on.
fn file(from: i64, groups: usize) -> Vec<u8> {
    let rows = from..from + 100 * groups as i64;
    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone()));
    let b: ArrayRef = Arc::new(StringArray::from_iter_values(rows.map(|n| format!("s{n}"))));
    let batch = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::read(write(&folder.path().join("x"), &batch, 100)).unwrap()
}

fn on_s3(sql: &str, store: &SmallS3, workers: u32) -> QuerySpec {
    QuerySpec { aws: store.variables(), ..spec(sql, workers) }
}

/// The row of an answer that has one, without spaces; and its profile.
async fn row(query: &QuerySpec) -> (String, Profile) {
    let (batches, profile) = answer(query, Arc::default()).await.unwrap();
    let text = pretty_format_batches(&batches).unwrap().to_string();
    (text.lines().nth(3).unwrap().replace(' ', ""), profile)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_one_row_group_needs_one_read_for_planning_and_one_for_its_task() {
    let store = SmallS3::start();
    store.put_bytes("t/a.parquet", file(0, 1));
    let query = on_s3("select sum(a), max(b) from 's3://b/t/'", &store, 1);
    let (found, profile) = row(&query).await;
    assert_eq!(found, "|4950|s99|");
    assert_eq!(store.requests().reads, 2);
    let requests = profile.cost.requests;
    assert_eq!((requests.plan_reads, requests.scan_reads), (1, 1));
}

/// Row groups of the same file are in several tasks, and each task reads only its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_reads_a_footer() {
    let store = SmallS3::start();
    for number in 0..3 {
        store.put_bytes(&format!("t/{number}.parquet"), file(number * 1000, 10));
    }
    let query = on_s3("select count(b), sum(a) from 's3://b/t/'", &store, 4);
    let (found, profile) = row(&query).await;
    assert_eq!(found, "|3000|4498500|");
    assert!(profile.totals.tasks >= 4);
    // A footer and ten row groups of each file.
    assert_eq!(store.requests().reads, 3 + 30);
}

/// The footer that the task was sent does not belong to the new object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_replaced_after_planning_is_refused() {
    let store = SmallS3::start();
    store.put_bytes("t/a.parquet", file(0, 2));
    let query = on_s3("select sum(a) from 's3://b/t/'", &store, 1);
    let planned = plan(&query).await.unwrap();
    store.put_bytes("t/a.parquet", file(7, 2));
    let report = run_failure(planned, &query).await;
    assert!(report.contains("SM-0116") && report.contains("t/a.parquet"), "{report}");
}

/// The filter leaves one of four files: one task runs, and reads nothing of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_and_row_groups_that_statistics_contradict_start_no_worker() {
    let store = SmallS3::start();
    for number in 0..4 {
        store.put_bytes(&format!("t/{number}.parquet"), file(number * 1000, 10));
    }
    let sql = "select count(b), min(a) from 's3://b/t/' where a >= 3000 and a < 3100";
    let (found, profile) = row(&on_s3(sql, &store, 4)).await;
    assert_eq!(found, "|100|3000|");
    let stage = &profile.stages[0];
    assert_eq!(stage.tasks, 1);
    // All of three files; the range of the row group that is left reaches to the end of its file.
    assert_eq!(stage.left_out, 30);
    // The footers, for planning, and one row group.
    assert_eq!(store.requests().reads, 4 + 1);
    let sql = "select count(*), min(a) from 's3://b/t/' where a < 0";
    let (found, _) = row(&on_s3(sql, &store, 4)).await;
    assert_eq!(found, "|0||");
    assert_eq!(store.requests().reads, 5 + 4);
}

/// Files whose columns have other types than the table, and columns of folders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_keeps_files_whose_statistics_are_not_comparable() {
    let store = SmallS3::start();
    let small: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
    let folder = tempfile::tempdir().unwrap();
    let batch = RecordBatch::try_from_iter([("a", small)]).unwrap();
    let small = std::fs::read(write(&folder.path().join("x"), &batch, 100)).unwrap();
    store.put_bytes("t/k=1/a.parquet", small);
    store.put_bytes("t/k=2/b.parquet", file(1000, 1));
    let all = "from 's3://b/t/' where";
    for (filter, expected) in
        [("a < 5", "5"), ("a >= 1000", "100"), ("k = 2", "100"), ("k = 1 and a > 7", "2")]
    {
        let (found, _) = row(&on_s3(&format!("select count(*) {all} {filter}"), &store, 2)).await;
        assert_eq!(found, format!("|{expected}|"), "{filter}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_levels_of_concurrency_are_in_the_profile() {
    let store = SmallS3::start();
    store.put_bytes("t/a.parquet", file(0, 10));
    let (_, profile) = row(&on_s3("select sum(a), max(b) from 's3://b/t/'", &store, 1)).await;
    // One footer was sent; the two columns of each row group are one request.
    let expected = ScanCounts {
        footers_ahead: 1,
        row_groups_in_flight: 2,
        merged: 10,
        ..ScanCounts::default()
    };
    assert_eq!(profile.totals.progress.scans, expected);
    // A column chunk of 20 MB that cannot be compressed.
    let mixed = (0..2_500_000i64).map(|n| n.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let sum = mixed.clone().filter(|n| n % 1000 == 0).count();
    let mixed: ArrayRef = Arc::new(Int64Array::from_iter_values(mixed));
    let batch = RecordBatch::try_from_iter([("a", mixed)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let long = std::fs::read(write(&folder.path().join("x"), &batch, 2_500_000)).unwrap();
    store.put_bytes("long/a.parquet", long);
    let before = store.requests().reads;
    let sql = "select count(*) from 's3://b/long/' where a % 1000 = 0";
    let (found, profile) = row(&on_s3(sql, &store, 1)).await;
    assert_eq!(found, format!("|{sum}|"));
    assert_eq!(profile.totals.progress.scans.split, 1);
    assert_eq!(store.requests().reads - before, 1 + 2);
}

/// The store never answers one request: the query ends because it is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_never_answered_is_sent_again() {
    let store = SmallS3::start();
    for number in 0..3 {
        store.put_bytes(&format!("t/{number}.parquet"), file(number * 10_000, 100));
    }
    // On a busy machine others are slow too, and one in twenty can be sent again.
    store.stall_after(3 + 290);
    let (found, profile) = row(&on_s3("select count(b), sum(a) from 's3://b/t/'", &store, 1)).await;
    assert_eq!(found, "|30000|449985000|");
    let progress = &profile.totals.progress;
    let hedged = progress.scans.hedged;
    assert!(hedged >= 1, "{progress:?}");
    // Both are counted, and billed.
    assert_eq!(progress.store_reads, 300 + hedged);
    assert_eq!(profile.cost.requests.hedged, hedged);
}

/// Keeps the footers of one query for the next one, as the platform does.
#[derive(Debug, Default)]
struct Remembered {
    footers: Mutex<BTreeMap<String, Bytes>>,
}

#[async_trait]
impl LocalFiles for Remembered {
    async fn list(&self, location: &str) -> snowmelt_query::Result<Vec<LocalFile>> {
        HostFiles { folder: "/".into() }.list(location).await
    }

    async fn open(&self, path: &str) -> snowmelt_query::Result<File> {
        HostFiles { folder: "/".into() }.open(path).await
    }

    async fn recall_footers(&self, files: Vec<String>) -> Vec<Option<Bytes>> {
        let footers = self.footers.lock().unwrap();
        files.iter().map(|file| footers.get(file).cloned()).collect()
    }

    fn keep_footers(&self, footers: Vec<(String, Bytes)>) {
        self.footers.lock().unwrap().extend(footers);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_query_reads_no_footers_unless_an_object_was_replaced() {
    let store = SmallS3::start();
    let known = Arc::new(Remembered::default());
    for number in 0..3 {
        store.put_bytes(&format!("t/{number}.parquet"), file(number * 1000, 1));
    }
    let sql = "select count(b), sum(a) from 's3://b/t/'";
    let query = QuerySpec { files: Arc::clone(&known) as _, ..on_s3(sql, &store, 2) };
    let expected = "|300|314850|";
    for (reads, plan_reads) in [(6, 3), (9, 0)] {
        let (found, profile) = row(&query).await;
        assert_eq!((found.as_str(), store.requests().reads), (expected, reads));
        assert_eq!(profile.cost.requests.plan_reads, plan_reads);
    }
    store.put_bytes("t/1.parquet", file(5000, 2));
    let (found, profile) = row(&query).await;
    assert_eq!((found.as_str(), profile.cost.requests.plan_reads), ("|400|1229800|", 1));
    // What was kept does not fit its file, or is no footer: the file is read.
    for bytes in [&b"PAR1"[..], b"", b"\x04\0\0\0\x04\0\0\0PAR1"] {
        let bytes = Bytes::from_static(bytes);
        known.footers.lock().unwrap().values_mut().for_each(|kept| *kept = bytes.clone());
        let (found, profile) = row(&query).await;
        assert_eq!((found.as_str(), profile.cost.requests.plan_reads), ("|400|1229800|", 3));
    }
}
