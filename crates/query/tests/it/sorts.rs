//! Sorts of all rows that workers merge in ranges of keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use snowmelt_query::{QuerySpec, RANGE_SORT_BYTES, RunOptions, plan};
use snowmelt_types::Report;
use snowmelt_wire::{ExchangeOptions, MediumChoice};

use crate::data::write;
use crate::runner::{InProcess, answer, located, options, run_with};
use crate::shared::Shared;
use crate::small_s3::SmallS3;

const TABLES: [&str; 3] = ["mixed", "skewed", "none"];

/// `mixed` has nulls, repeated texts and special numbers; nine of ten rows of `skewed` have one key;
/// `none` has no rows. Each is three files. Only `id` is unique.
static FOLDER: LazyLock<Shared> = LazyLock::new(|| {
    Shared::new("sorts", |folder| {
        for (name, rows) in [("mixed", 30_000_i64), ("skewed", 200_000), ("none", 0)] {
            std::fs::create_dir(folder.join(name)).unwrap();
            for file in 0..3 {
                let ids = (0..rows).filter(|row| row % 3 == file);
                let batch = if name == "skewed" { skewed(ids) } else { mixed(ids) };
                write(&folder.join(format!("{name}/{file}.parquet")), &batch, 2_000);
            }
        }
    })
});

/// A number that looks random.
fn scattered(id: i64, of: i64) -> i64 {
    (id.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 20).rem_euclid(of)
}

fn mixed(ids: impl Iterator<Item = i64> + Clone) -> RecordBatch {
    let some = |id: i64, of: i64| Some(scattered(id, of)).filter(|value| value % 7 != 3);
    let float = |id: i64| match scattered(id, 23) {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(f64::INFINITY),
        3 => Some(f64::NEG_INFINITY),
        4 => Some(-0.0),
        5 => Some(0.0),
        _ => Some(scattered(id, 2_001) as f64 / 7.0 - 100.0),
    };
    // Longer than the key of a mark, so that many keys begin with the same bytes.
    let text = |id: i64| {
        some(id + 5, 90).map(|n| format!("{}{n}", "long ".repeat(if n % 2 == 0 { 40 } else { 0 })))
    };
    RecordBatch::try_from_iter_with_nullable([
        (
            "n",
            Arc::new(ids.clone().map(|id| some(id, 500)).collect::<Int64Array>()) as ArrayRef,
            true,
        ),
        ("x", Arc::new(ids.clone().map(float).collect::<Float64Array>()), true),
        ("s", Arc::new(ids.clone().map(text).collect::<StringArray>()), true),
        ("id", Arc::new(Int64Array::from_iter_values(ids)), false),
    ])
    .unwrap()
}

fn skewed(ids: impl Iterator<Item = i64> + Clone) -> RecordBatch {
    let key = |id: i64| if id % 10 == 0 { scattered(id, 1_000_000) } else { 500_000 };
    RecordBatch::try_from_iter([
        ("k", Arc::new(Int64Array::from_iter_values(ids.clone().map(key))) as ArrayRef),
        ("id", Arc::new(Int64Array::from_iter_values(ids))),
    ])
    .unwrap()
}

/// A query whose sorts all count as large.
fn ranged(sql: &str, workers: u32) -> QuerySpec {
    let folder: &Path = FOLDER.path();
    let tables = TABLES.map(|name| (name.to_owned(), format!("{name}/")));
    QuerySpec { workers, tables: tables.into(), range_sort_bytes: 0, ..located(sql, folder) }
}

async fn plain(sql: &str) -> Vec<RecordBatch> {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    for table in TABLES {
        let folder = FOLDER.path().join(table);
        let options = ParquetReadOptions::default();
        session.register_parquet(table, folder.to_str().unwrap(), options).await.unwrap();
    }
    session.sql(sql).await.unwrap().collect().await.unwrap()
}

/// The rows as text. The first `keys` columns alone have an order.
fn rows(batches: &[RecordBatch], keys: usize) -> (Vec<String>, Vec<String>) {
    let text = |columns: std::ops::Range<usize>| -> Vec<String> {
        let columns: Vec<usize> = columns.collect();
        let batches: Vec<RecordBatch> =
            batches.iter().map(|batch| batch.project(&columns).unwrap()).collect();
        let text = pretty_format_batches(&batches).unwrap().to_string();
        text.lines()
            .filter(|line| line.starts_with('|'))
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    };
    let Some(first) = batches.first() else { return Default::default() };
    let mut all = text(0..first.num_columns());
    all.sort();
    (text(0..keys), all)
}

/// Compares a query with its first `keys` columns as sort keys with a plain sort.
async fn check(sql: &str, keys: usize) {
    let expected = rows(&plain(sql).await, keys);
    for workers in [1, 3, 16] {
        let query = ranged(sql, workers);
        let shown = plan(&query).await.unwrap();
        let ranges = format!("sort: ranges of {workers}");
        assert_eq!(shown.worker_plan().contains(&ranges), workers > 1, "{}", shown.worker_plan());
        assert_eq!(shown.driver_plan().contains(&ranges), workers > 1, "{}", shown.driver_plan());
        let (batches, _) = answer(&query, Arc::default()).await.unwrap();
        assert_eq!(rows(&batches, keys), expected, "{workers} workers: {sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sorts_in_ranges_give_the_rows_of_a_plain_sort() {
    for (sql, keys) in [
        ("select n, id from mixed order by n, id", 2),
        ("select n, x, s, id from mixed order by n desc nulls last", 1),
        ("select x, id from mixed order by x", 1),
        ("select x, id from mixed order by x desc nulls first", 1),
        ("select s, id from mixed order by s", 1),
        ("select n, x, s, id from mixed order by s desc, n nulls first, x", 3),
        ("select n % 3 m, s, id from mixed where n > 100 order by m, s desc", 2),
        ("select id from mixed order by id desc", 1),
    ] {
        check(sql, keys).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_windows_above_a_sort_in_ranges_are_right() {
    for (sql, keys) in [
        ("select n, id from mixed order by n, id limit 20000", 2),
        ("select n, id from mixed order by n, id limit 5000 offset 12345", 2),
        ("select n, id, row_number() over (order by n, id) r from mixed order by 1, 2", 3),
        (
            "select id, sum(id) over (order by x nulls first, id) r from mixed where n < 9 order by x nulls first, id",
            2,
        ),
    ] {
        check(sql, keys).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_rows_is_sorted_in_ranges() {
    let (batches, _) =
        answer(&ranged("select n, id from none order by n", 3), Arc::default()).await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frequent_key_is_divided_between_ranges() {
    let sql = "select k, id from skewed order by k";
    check(sql, 1).await;
    let runner = Arc::new(InProcess::default());
    let (_, profile) = answer(&ranged(sql, 4), Arc::clone(&runner)).await.unwrap();
    assert_eq!((profile.stages[1].tasks, profile.stages[1].rows), (4, 200_000));
    let given = runner.rows_given.lock().unwrap();
    let merged = profile.stages[0].tasks..profile.totals.tasks;
    // A quarter each, and what is beside it in some frames.
    assert!(merged.map(|task| given[&task]).all(|rows| rows < 80_000), "{given:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_sorted_outputs_are_made_again() {
    let sql = "select k, id from skewed order by k";
    let expected = rows(&plain(sql).await, 1);
    let query = ranged(sql, 4);
    let sorting = plan(&query).await.unwrap().tasks().unwrap().len() as u32 / 2;
    for losing in [sorting, sorting + 2] {
        let vanish = BTreeMap::from([(losing, vec![0, 2])]);
        let runner = Arc::new(InProcess { vanish, ..InProcess::default() });
        let (batches, _) = answer(&query, Arc::clone(&runner)).await.unwrap();
        assert_eq!(rows(&batches, 1), expected);
        assert!(runner.tried.lock().unwrap()[&0] > 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sorts_in_ranges_read_objects() {
    let store = SmallS3::start();
    for combining in [true, false] {
        let exchange = ExchangeOptions {
            medium: MediumChoice::Objects,
            locations: vec!["s3://b/tmp/".to_owned()],
            combining,
            ..ExchangeOptions::default()
        };
        let sql = "select n, s, id from mixed order by n, s desc, id";
        let query = QuerySpec { exchange, aws: store.variables(), ..ranged(sql, 3) };
        let (batches, profile) = answer(&query, Arc::default()).await.unwrap();
        assert_eq!(rows(&batches, 3), rows(&plain(sql).await, 3));
        // Objects that are not combined are merged by the driver, which reads no exchange.
        assert_eq!(profile.totals.progress.exchange_reads >= 3, combining);
    }
}

/// With so little memory the driver cannot merge the rows, nor hold them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_driver_passes_ranges_on_in_little_memory() {
    let sql = "select k, id from skewed order by k desc";
    for (range_sort_bytes, answers) in [(0, true), (u64::MAX, false)] {
        let query = QuerySpec { range_sort_bytes, ..ranged(sql, 4) };
        let planned = plan(&query).await.unwrap();
        let little = RunOptions { memory_bytes: 50_000, ..options(&query) };
        let mut found = run_with(planned, little, Arc::default(), Arc::default()).await.unwrap();
        match found.collect().await {
            Ok(batches) => {
                assert!(answers);
                assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 200_000);
            }
            Err(error) => {
                assert!(!answers, "{error}");
                assert!(error.report().to_string().contains("SM-0111"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_small_sort_is_merged_by_the_driver() {
    let query = QuerySpec {
        range_sort_bytes: RANGE_SORT_BYTES,
        ..ranged("select n, id from mixed order by n", 3)
    };
    let planned = plan(&query).await.unwrap();
    assert!(planned.driver_plan().contains("SortPreservingMergeExec"), "{}", planned.driver_plan());
    // Random keys would have other values where a range begins.
    let random = plan(&ranged("select id from mixed order by random()", 3)).await.unwrap();
    assert!(!random.worker_plan().contains("ranges"), "{}", random.worker_plan());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_union_are_ordered_by_constants_that_differ_between_its_inputs() {
    let of = |limit| {
        format!(
            "select * from (select 1 as a, id from mixed union all
             select 2 as a, id + 100000 from mixed) order by a desc, id{limit}"
        )
    };
    for (limit, workers, count) in
        [(" limit 3", 1, 3), (" limit 3", 3, 3), ("", 1, 60_000), ("", 3, 60_000)]
    {
        let query = QuerySpec { range_sort_bytes: RANGE_SORT_BYTES, ..ranged(&of(limit), workers) };
        // Sorts by `id` alone would share the largest `id` that is needed: that of the input which
        // is sorted first, and not that of the answer.
        let planned = plan(&query).await.unwrap();
        let shown = planned.worker_plan();
        let sorts: Vec<&str> = shown.lines().filter(|line| line.contains("SortExec")).collect();
        assert!(!sorts.is_empty(), "{shown}");
        assert!(sorts.iter().all(|line| line.contains("a@0 DESC")), "{shown}");
        let (batches, _) = answer(&query, Arc::default()).await.unwrap();
        let found = rows(&batches, 2).0;
        let half = (0..30_000).map(|id| format!("| 2 | {} |", id + 100_000));
        let expected: Vec<String> =
            half.chain((0..30_000).map(|id| format!("| 1 | {id} |"))).take(count).collect();
        assert_eq!(found, expected, "{workers} workers{limit}");
    }
}
