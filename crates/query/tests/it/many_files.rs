//! Stages with many files: a task is not sent the names of all of them.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::pretty::pretty_format_batches;
use snowmelt_query::{PlannedTask, QuerySpec};

use crate::data::write;
use crate::runner::{InProcess, answer, located};
use crate::shared::Shared;

const FILES: u32 = 200;

/// Enough that a file is worth a task.
const ROWS: i64 = 2_000;

/// A number for each row, and one that looks random, so that files cannot be compressed.
static FOLDER: LazyLock<Shared> = LazyLock::new(|| {
    Shared::new("many-files", |folder| {
        for table in ["a", "b"] {
            std::fs::create_dir(folder.join(table)).unwrap();
            for file in 0..i64::from(FILES) {
                let numbers = file * ROWS..(file + 1) * ROWS;
                let columns = [
                    ("n", Arc::new(Int64Array::from_iter_values(numbers.clone())) as ArrayRef),
                    ("x", Arc::new(Int64Array::from_iter_values(numbers.map(random))) as ArrayRef),
                ];
                let batch = RecordBatch::try_from_iter(columns).unwrap();
                let path = folder.join(format!("{table}/{file:03}.parquet"));
                write(&path, &batch, ROWS as usize);
            }
        }
    })
});

fn random(row: i64) -> i64 {
    row.wrapping_mul(0x1E37_79B9_7F4A_7C15) >> 24
}

fn query(sql: &str) -> QuerySpec {
    let tables = ["a", "b"].map(|name| (name.to_owned(), format!("{name}/")));
    QuerySpec { workers: FILES, tables: tables.into(), ..located(sql, FOLDER.path()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_sent_plans_with_a_part_of_the_files() {
    let sql = "select count(*), sum(x) from a where n >= 0";
    let runner = Arc::new(InProcess::default());
    answer(&query(sql), Arc::clone(&runner)).await.unwrap();
    let tasks: Vec<PlannedTask> = runner.asked.lock().unwrap().values().cloned().collect();
    assert_eq!(tasks.len(), FILES as usize);
    let plans: BTreeSet<&[u8]> = tasks.iter().map(|task| &*task.plan).collect();
    assert_eq!(plans.len(), 4, "64 tasks each");
    let names = |task: &PlannedTask| {
        let text = String::from_utf8_lossy(&task.plan).into_owned();
        text.matches(".parquet").count()
    };
    for task in &tasks {
        assert!((1..=64).contains(&names(task)), "{}", names(task));
        assert_eq!(task.files.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn their_answers_are_right() {
    let rows = i64::from(FILES) * ROWS;
    let sum: i64 = (0..rows).map(random).sum();
    for (sql, expected) in [
        ("select count(*) c, sum(x) s from a where n >= 0", format!("{rows} {sum}")),
        // Partitions of a union are those of its inputs, one after another.
        (
            "select count(*) c, sum(v) s from (select 3 * x v from a union all select -x from b)",
            format!("{} {}", 2 * rows, 2 * sum),
        ),
        (
            "select count(*) c, sum(a.x + b.x) s from a join b on a.n = b.n",
            format!("{rows} {}", 2 * sum),
        ),
        // Each task reads all of one side.
        (
            "select count(*) c, sum(a.x) s from a join (select n m from b where n < 5) on n % 5 = m",
            format!("{rows} {sum}"),
        ),
        (
            "select count(*) c, sum(m) s from (select n % 7 g, sum(x) m from a group by 1)",
            format!("7 {sum}"),
        ),
    ] {
        let (batches, profile) = answer(&query(sql), Arc::default()).await.unwrap();
        let text = pretty_format_batches(&batches).unwrap().to_string();
        let row = text.lines().nth(3).unwrap().replace('|', " ");
        let found = row.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(found, expected, "{sql}");
        assert!(profile.totals.tasks >= FILES, "{sql}");
    }
}
