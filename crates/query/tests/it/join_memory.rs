//! Joins whose build side does not fit into memory: they are done by sorting, in scratch.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use snowmelt_api::{Finding, Profile};
use snowmelt_query::{PlannedTask, QuerySpec, plan};

use crate::data::write;
use crate::runner::{InProcess, RecordingReporter, Which, answer, failure, located, run};
use crate::shared::Shared;

const TABLES: [&str; 3] = ["build", "probe", "few"];

/// Enough for sorts in parts, and too little for the build side of a join.
const LITTLE: u64 = 4 << 20;

/// How often the kernel may end a worker of a task that uses scratch.
const MAX_TIMES: u32 = 4;

/// `build` and `probe` have a key several times, and nulls in `n`; half of the keys of each are in
/// the other. `few` has few enough rows that every task of a join reads all of them.
static FOLDER: LazyLock<Shared> = LazyLock::new(|| {
    Shared::new("join-memory", |folder| {
        let table = |name: &str, rows: i64, key: fn(i64) -> i64| {
            std::fs::create_dir(folder.join(name)).unwrap();
            for file in 0..4 {
                let rows = || (0..rows).filter(move |row| row % 4 == file);
                let some = |row: i64| Some(key(row)).filter(|_| row % 1_000 != 7);
                let columns: [(&str, ArrayRef, bool); 3] = [
                    ("k", Arc::new(Int64Array::from_iter_values(rows().map(key))), false),
                    ("n", Arc::new(rows().map(some).collect::<Int64Array>()), true),
                    ("v", Arc::new(Int64Array::from_iter_values(rows())), false),
                ];
                let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
                write(&folder.join(format!("{name}/{file}.parquet")), &batch, 50_000);
            }
        };
        table("build", 400_000, |row| row * 7919 % 300_000);
        table("probe", 500_000, |row| 150_000 + row * 104_729 % 300_000);
        table("few", 40_000, |row| 180_000 + row);
    })
});

fn query(sql: &str, workers: u32) -> QuerySpec {
    let tables = TABLES.map(|name| (name.to_owned(), format!("{name}/")));
    QuerySpec { workers, tables: tables.into(), ..located(sql, FOLDER.path()) }
}

async fn plain(sql: &str) -> String {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    for table in TABLES {
        let folder = FOLDER.path().join(table);
        let options = ParquetReadOptions::default();
        session.register_parquet(table, folder.to_str().unwrap(), options).await.unwrap();
    }
    rows(&session.sql(sql).await.unwrap().collect().await.unwrap())
}

/// The rows as text, with single spaces.
pub fn rows(batches: &[RecordBatch]) -> String {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let blank = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = text.lines().filter(|line| line.starts_with('|')).skip(1).map(blank);
    lines.collect::<Vec<_>>().join("\n")
}

fn sorted_instead(profile: &Profile) -> bool {
    profile.findings.iter().any(|finding| finding.title.contains("done by sorting"))
}

/// Runs a query with little memory, in which a hash join does not fit.
async fn check(sql: &str, memory_bytes: u64) {
    let spec = query(sql, 2);
    let (batches, profile) = answer(&spec, Arc::default()).await.unwrap();
    assert!(!sorted_instead(&profile), "{sql}");
    assert_eq!(rows(&batches), plain(sql).await, "{sql}");
    let runner = Arc::new(InProcess { memory_bytes, ..InProcess::default() });
    let (found, profile) = answer(&spec, runner).await.unwrap();
    assert_eq!(rows(&found), rows(&batches), "{sql}");
    assert!(sorted_instead(&profile), "{sql}: {:?}", profile.findings);
    assert!(profile.totals.progress.spilled_bytes > 0, "{sql}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_that_do_not_fit_are_done_by_sorting() {
    for join in ["inner join", "left join", "right join", "full join"] {
        let sql = format!(
            "select count(*) c, count(b.v) b, sum(b.v) sb, count(p.v) p, sum(p.v) sp from build b {join} probe p on b.k = p.k"
        );
        check(&sql, LITTLE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semi_joins_and_conditions_are_right_by_sorting() {
    for sql in [
        "select count(*) c, sum(v) s from probe p where exists (select 1 from build b where b.k = p.k and b.v % 5 < p.v % 5)",
        "select count(*) c, sum(v) s from probe p where not exists (select 1 from build b where b.k = p.k and b.v % 5 < p.v % 5)",
        "select b.v % 10 g, count(*) c, sum(p.v) s from build b join probe p on b.n = p.n and b.v < p.v group by 1 order by 1",
    ] {
        check(sql, LITTLE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outer_joins_with_a_condition_are_right_by_sorting() {
    for join in ["left join", "right join", "full join"] {
        let sql = format!(
            "select count(*) c, count(b.v) b, sum(b.v) sb, count(p.v) p, sum(p.v) sp from build b {join} probe p on b.k = p.k and b.v % 7 < p.v % 5"
        );
        check(&sql, LITTLE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_in_is_right_by_sorting() {
    for sql in [
        // A null among the values.
        "select count(*) c, sum(v) s from probe where n not in (select n from build)",
        "select count(*) c, sum(v) s from probe where k not in (select k from build)",
        "select count(*) c, sum(v) s from probe where n not in (select n from build where n is not null)",
        "select count(*) c, count(n) n, sum(v) s from probe where n not in (select n from build where v < 0)",
    ] {
        check(sql, LITTLE).await;
    }
}

/// A join whose condition has no columns is no join by sorting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_cannot_be_sorted_names_operator_and_setting() {
    let sql = "select count(*) c, sum(b.v) s from build b full join probe p on b.k = p.k and random() < 2";
    let runner = InProcess { memory_bytes: LITTLE, ..InProcess::default() };
    let report = failure(&query(sql, 2), runner).await;
    assert!(report.contains("SM-0402") && report.contains("HashJoinExec"), "{report}");
    assert!(report.contains("at most") && report.contains("--memory"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_the_kernel_ends_at_its_limit_joins_by_sorting() {
    let sql = "select count(*) c, sum(b.v) s from build b join probe p on b.k = p.k";
    let spec = query(sql, 2);
    let (expected, profile) = answer(&spec, Arc::default()).await.unwrap();
    assert!(!sorted_instead(&profile));
    // The tasks that join read what others have written.
    let joins: Which = |task: &PlannedTask| !task.reads.is_empty();
    let runner = |times| InProcess { out_of_memory: Some((joins, times)), ..InProcess::default() };
    let (found, profile) = answer(&spec, Arc::new(runner(1))).await.unwrap();
    assert_eq!(rows(&found), rows(&expected));
    assert!(sorted_instead(&profile), "{:?}", profile.findings);
    let joined = profile.stages.iter().filter(|stage| !stage.discarded.is_empty());
    assert_eq!(joined.count(), 1, "{:?}", profile.stages);
    // By sorting as well: its operators have less and less, but not for ever.
    let (found, profile) = answer(&spec, Arc::new(runner(MAX_TIMES))).await.unwrap();
    assert_eq!(rows(&found), rows(&expected));
    let findings = || profile.findings.iter().map(|finding| finding.title.as_str());
    assert!(findings().any(|title| title.contains("ran again with more scratch")));
    let report = failure(&spec, runner(MAX_TIMES + 1)).await;
    assert!(report.contains("SM-0402") && report.contains("peak"), "{report}");
    // What holds no rows cannot hold fewer.
    let runner = InProcess { out_of_memory: Some((|_| true, 1)), ..InProcess::default() };
    let report = failure(&query("select sum(v) from probe", 2), runner).await;
    assert!(report.contains("SM-0402") && report.contains("peak"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_groups_that_the_kernel_ends_runs_again_with_more_scratch() {
    let sql = "select count(*) c, sum(s) s from (select k, sum(v) s from probe group by k)";
    let spec = query(sql, 2);
    let (expected, _) = answer(&spec, Arc::default()).await.unwrap();
    let spills = |profile: &Profile| profile.totals.progress.spilled_bytes > 0;
    // Enough for all groups, so half of it is not.
    let enough = (1..).map(|step| step * LITTLE / 2);
    for memory_bytes in enough {
        let runner = InProcess { memory_bytes, ..InProcess::default() };
        if !answer(&spec, Arc::new(runner)).await.is_ok_and(|(_, profile)| !spills(&profile)) {
            continue;
        }
        let groups: Which = |task: &PlannedTask| !task.reads.is_empty();
        let runner = |times| InProcess {
            memory_bytes,
            out_of_memory: Some((groups, times)),
            ..InProcess::default()
        };
        for times in [1, MAX_TIMES] {
            let (found, profile) = answer(&spec, Arc::new(runner(times))).await.unwrap();
            assert_eq!(rows(&found), rows(&expected));
            assert!(spills(&profile));
            let finding = |it: &Finding| it.title.contains("ran again with more scratch");
            assert!(profile.findings.iter().any(finding), "{:?}", profile.findings);
        }
        let report = failure(&spec, runner(MAX_TIMES + 1)).await;
        assert!(report.contains("SM-0402") && report.contains("peak"), "{report}");
        return;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_do_not_fit_spill() {
    for sql in [
        "select count(*) c, sum(s) s, max(n) n from (select k, sum(v) s, count(*) n from probe group by k)",
        "select count(*) c, sum(s) s from (select k, v, sum(n) s from probe group by k, v)",
        "select count(distinct v) d from probe",
        "select k, count(*) c from probe group by k order by c desc, k limit 5",
    ] {
        let spec = query(sql, 2);
        let (expected, _) = answer(&spec, Arc::default()).await.unwrap();
        assert_eq!(rows(&expected), plain(sql).await, "{sql}");
        // Twice as much: each of the files that were spilled needs a buffer when they are merged.
        let memory_bytes = 2 * LITTLE;
        let runner = Arc::new(InProcess { memory_bytes, ..InProcess::default() });
        let (found, profile) = answer(&spec, runner).await.unwrap();
        assert_eq!(rows(&found), rows(&expected), "{sql}");
        assert!(profile.totals.progress.spilled_bytes > 0, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_does_not_fit_by_sorting_either_ends() {
    let sql = "select count(*) from build b join probe p on b.k = p.k";
    let spec = query(sql, 2);
    let runner = Arc::new(InProcess { memory_bytes: 100_000, ..InProcess::default() });
    let reporter = Arc::new(RecordingReporter::default());
    let planned = plan(&spec).await.unwrap();
    let started = run(planned, &spec, Arc::clone(&runner), Arc::clone(&reporter)).await;
    let error = started.unwrap().collect().await.unwrap_err();
    let report = snowmelt_types::Report::report(&error).to_string();
    assert!(report.contains("SM-0402") && report.contains("the operator"), "{report}");
    let notes = reporter.notes.lock().unwrap();
    assert!(notes.iter().any(|note| note.contains("it sorts instead")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("its batches are smaller")), "{notes:?}");
    assert!(runner.tried.lock().unwrap().values().all(|tried| *tried <= 4));
}

/// A sort of several columns, which has an operator of its own, spills as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sort_that_does_not_fit_spills() {
    let sql = "select k, n, v from probe order by n desc, k, v";
    let spec = query(sql, 2);
    let (expected, _) = answer(&spec, Arc::default()).await.unwrap();
    let runner = Arc::new(InProcess { memory_bytes: LITTLE, ..InProcess::default() });
    let (found, profile) = answer(&spec, runner).await.unwrap();
    assert!(profile.totals.progress.spilled_bytes > 0);
    assert!(rows(&found) == rows(&expected), "other rows");
}
