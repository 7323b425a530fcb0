//! Joins whose probe side has one key in most rows: several tasks divide its partition, and the
//! answer is right.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use snowmelt_api::Profile;
use snowmelt_query::QuerySpec;

use crate::data::write;
use crate::runner::{InProcess, answer, located};
use crate::shared::Shared;

/// Rows of each table: too many for a join whose tasks all read one side, if there are four tasks.
const BUILD: i64 = 150_000;
const PROBE: i64 = 200_000;

/// The key that nine of ten rows of `probe` have.
const FREQUENT: i64 = 7;

/// `build` has each key once, `probe` has one key in nine of ten rows; each is three files.
static FOLDER: LazyLock<Shared> = LazyLock::new(|| {
    Shared::new("skew", |folder| {
        let table = |name: &str, rows: i64, key: fn(i64) -> i64| {
            std::fs::create_dir(folder.join(name)).unwrap();
            for file in 0..3 {
                let rows = (0..rows).filter(|row| row % 3 == file);
                let keys = Int64Array::from_iter_values(rows.clone().map(key));
                let values = Int64Array::from_iter_values(rows);
                let columns =
                    [("k", Arc::new(keys) as ArrayRef), ("v", Arc::new(values) as ArrayRef)];
                let batch = RecordBatch::try_from_iter(columns).unwrap();
                write(&folder.join(format!("{name}/{file}.parquet")), &batch, 20_000);
            }
        };
        table("build", BUILD, |row| row);
        table("probe", PROBE, |row| if row % 10 == 0 { row } else { FREQUENT });
    })
});

/// The answer of one process.
async fn expected(sql: &str) -> String {
    let session = SessionContext::new();
    for table in ["build", "probe"] {
        let folder = FOLDER.path().join(table);
        let options = ParquetReadOptions::default();
        session.register_parquet(table, folder.to_str().unwrap(), options).await.unwrap();
    }
    let sql = sql.replace("'build/'", "build").replace("'probe/'", "probe");
    let batches = session.sql(&sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// The answer, the profile, and the rows that the tasks of the join were given, in order.
async fn run(sql: &str, workers: u32) -> (String, Profile, Vec<u64>) {
    let folder: &Path = FOLDER.path();
    let spec = QuerySpec { workers, ..located(sql, folder) };
    let runner = Arc::new(InProcess::default());
    let (batches, profile) = answer(&spec, Arc::clone(&runner)).await.unwrap();
    let mut stages = profile.stages.iter();
    let join = stages.position(|stage| stage.reads.len() == 2).expect("a join of two exchanges");
    let first: u32 = profile.stages[..join].iter().map(|stage| stage.tasks).sum();
    let given = runner.rows_given.lock().unwrap();
    let tasks = first..first + profile.stages[join].tasks;
    let mut rows: Vec<u64> = tasks.map(|task| given[&task]).collect();
    rows.sort_unstable();
    drop(given);
    (pretty_format_batches(&batches).unwrap().to_string(), profile, rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_with_a_frequent_key_give_the_same_answer() {
    // Each groups by another column than the key, so that the output of the join is split again.
    for sql in [
        "select p.v % 10 g, count(*) c, sum(b.v) s from 'build/' b join 'probe/' p on b.k = p.k group by 1 order by 1",
        "select p.v % 10 g, count(*) c, count(b.v) s from 'build/' b right join 'probe/' p on b.k = p.k group by 1 order by 1",
        "select v % 10 g, count(*) c, sum(k) s from 'probe/' p where exists (select 1 from 'build/' b where b.k = p.k) group by 1 order by 1",
        "select v % 10 g, count(*) c, sum(k) s from 'probe/' p where not exists (select 1 from 'build/' b where b.k = p.k) group by 1 order by 1",
        // Rows of the side with each key once that have no match: not to be divided.
        "select b.v % 10 g, count(*) c, count(p.v) s from 'build/' b left join 'probe/' p on b.k = p.k group by 1 order by 1",
        "select b.v % 10 g, count(*) c, count(p.v) s from 'build/' b full join 'probe/' p on b.k = p.k group by 1 order by 1",
        "select b.v % 10 g, count(*) c, count(b.k) s from 'build/' b where not exists (select 1 from 'probe/' p where b.k = p.k) group by 1 order by 1",
    ] {
        let expected = expected(sql).await;
        for workers in [5, 8] {
            assert_eq!(run(sql, workers).await.0, expected, "{workers}: {sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_partition_of_a_frequent_key_is_divided_among_tasks() {
    let sql = "select p.v % 10 g, count(*) c from 'build/' b join 'probe/' p on b.k = p.k group by 1 order by 1";
    let (_, profile, rows) = run(sql, 8).await;
    let largest = profile.stages.iter().find_map(|stage| {
        stage.largest.as_ref().filter(|largest| !stage.keys.is_empty() && largest.share > 0.8)
    });
    assert!(largest.is_some(), "{:?}", profile.stages);
    assert!(rows.len() <= 8, "no more tasks than workers: {rows:?}");
    // The key's 180,000 rows would be in one task. The build side's partition is read by several.
    assert!(rows[rows.len() - 1] < 120_000, "{rows:?}");
    assert!(rows.iter().sum::<u64>() > (BUILD + PROBE) as u64, "{rows:?}");
    // A join that returns rows of the other side without a match is not divided.
    let sql = sql.replace(" join ", " left join ");
    let (_, _, rows) = run(&sql, 8).await;
    assert_eq!(rows.iter().sum::<u64>(), (BUILD + PROBE) as u64, "{rows:?}");
    assert!(rows[rows.len() - 1] > 180_000, "{rows:?}");
}
