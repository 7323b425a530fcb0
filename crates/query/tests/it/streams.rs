//! Exchanges by streams: the same answers as by files, also when tasks are killed before, while and
//! after they send or receive.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use snowmelt_api::{Profile, StageProfile};
use snowmelt_query::{QuerySpec, RunOptions, Stragglers, plan};
use snowmelt_types::Report;
use snowmelt_wire::{ExchangeOptions, MediumChoice};

use crate::gangs::Gangs;
use crate::runner::{InProcess, answer, options, recorded, spec};

/// Groups of a scan: three tasks send to three others.
const GROUPS: &str = "select l_suppkey, count(*), sum(l_quantity) from lineitem group by 1";

/// The sides of the join are partitioned; its groups are stored.
const JOIN: &str = "select o_orderpriority, count(*), sum(l_quantity) from orders
    left join lineitem on l_orderkey = o_orderkey group by 1";

const QUERIES: &[&str] = &[
    GROUPS,
    JOIN,
    "select count(distinct l_partkey), count(distinct l_suppkey) from lineitem",
    "select count(*), sum(a.l_quantity) from lineitem a full join lineitem b on a.l_orderkey = b.l_partkey",
    "select l_suppkey, max(r) from (select l_suppkey, row_number() over
     (partition by l_suppkey order by l_orderkey, l_linenumber) r from lineitem) group by 1",
    "select * from (select o_orderkey, sum(o_custkey) over (partition by o_custkey order by o_orderkey) s
     from orders) order by 1",
    "select n_nationkey from nation union select o_custkey from orders",
    "select o_custkey from orders intersect select l_suppkey from lineitem",
    "select o_orderkey from orders where o_custkey not in (select l_suppkey from lineitem where l_tax = 0)",
    "select n_name, (select count(*) from orders where o_custkey = n_nationkey) from nation",
    "with c as (select l_suppkey k, count(*) n from lineitem group by 1)
     select a.k, b.n from c a join c b on a.n = b.k",
    // No rows, or few keys: empty partitions.
    "select l_suppkey, count(*) from lineitem where l_quantity < 0 group by 1",
    "select l_linestatus, count(*) from lineitem group by 1",
    "select double_it(l_suppkey), count(*) from lineitem group by 1",
    "select double_it(l_suppkey) d, sum(double_it(l_partkey)) from lineitem group by l_suppkey",
];

fn streamed(sql: &str, workers: u32) -> QuerySpec {
    let exchange = ExchangeOptions { medium: MediumChoice::Streams, ..ExchangeOptions::default() };
    QuerySpec { exchange, ..spec(sql, workers) }
}

fn text(batches: &[RecordBatch]) -> String {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let mut lines: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    lines.sort_unstable();
    lines.join("\n")
}

async fn by_files(sql: &str) -> String {
    let (batches, _) = answer(&spec(sql, 3), Arc::default()).await.unwrap();
    text(&batches)
}

/// The rows, the profile and the notes.
async fn run(
    query: &QuerySpec,
    runner: &Arc<InProcess>,
    options: RunOptions,
) -> Result<(String, Profile, Vec<String>), String> {
    let failed = |error: snowmelt_query::Error| error.report().to_string();
    let asked = query.clone();
    let planned = tokio::spawn(async move { plan(&asked).await }).await.unwrap().map_err(failed)?;
    let (batches, profile, notes) = recorded(planned, options, runner).await?;
    Ok((text(&batches), profile, notes))
}

async fn streams(sql: &str, runner: &Arc<InProcess>) -> (String, Profile, Vec<String>) {
    let query = streamed(sql, 3);
    let found = run(&query, runner, options(&query)).await.unwrap();
    assert_eq!(runner.gangs.live.load(Ordering::SeqCst), 0, "all gangs are disbanded");
    assert!(runner.outputs.lock().unwrap().is_empty(), "all outputs are released");
    found
}

fn of_medium<'p>(profile: &'p Profile, medium: &str) -> Vec<&'p StageProfile> {
    profile.stages.iter().filter(|stage| stage.medium == medium).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_files() {
    let tpch = crate::joins::tpch();
    let queries = tpch.iter().map(|(_, sql)| sql.as_str()).chain(QUERIES.iter().copied());
    let mut found = 0;
    for sql in queries {
        let expected = by_files(sql).await;
        let runner = Arc::default();
        let (rows, profile, _) = streams(sql, &runner).await;
        assert_eq!(rows, expected, "{sql}");
        found += of_medium(&profile, "streams").len();
    }
    assert!(found > QUERIES.len(), "{found} streams");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_profile_has_the_bytes_of_streams_and_the_partition_with_most_rows() {
    let runner = Arc::default();
    let (_, profile, _) = streams(GROUPS, &runner).await;
    let (_, stored) = answer(&spec(GROUPS, 3), Arc::default()).await.unwrap();
    let [sender, receiver] = profile.stages.as_slice() else { panic!("{:?}", profile.stages) };
    assert_eq!((sender.medium.as_str(), receiver.medium.as_str()), ("streams", "driver"));
    assert_eq!((sender.tasks, sender.attempts, receiver.tasks), (3, 3, 3));
    assert!(sender.bytes_sent > 0 && sender.bytes_sent == receiver.bytes_received);
    assert!(*runner.gangs.carried.lock().unwrap() > sender.bytes_sent);
    assert_eq!(sender.largest, stored.stages[0].largest);
    assert_eq!((sender.rows, &sender.keys), (stored.stages[0].rows, &stored.stages[0].keys));
    let progress = &profile.totals.progress;
    assert_eq!((progress.exchange_reads, progress.exchange_writes), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plan_names_what_is_streamed_and_why_the_rest_is_not() {
    let planned = plan(&streamed(JOIN, 3)).await.unwrap();
    let text = planned.worker_plan();
    assert!(text.contains("exchange by streams for stage 2"), "{text}");
    assert!(text.contains("exchange by files (its reader receives another stream)"), "{text}");
    assert!(text.contains("exchange by files (its stage receives a stream)"), "{text}");
    let twice = "with c as (select l_suppkey k, count(*) n from lineitem group by 1)
        select a.k, b.n from c a join c b on a.n = b.k";
    let planned = plan(&streamed(twice, 3)).await.unwrap();
    assert!(planned.worker_plan().contains("exchange by streams"), "{}", planned.worker_plan());
    let planned = plan(&spec(JOIN, 3)).await.unwrap();
    assert!(!planned.worker_plan().contains("streams"), "{}", planned.worker_plan());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_for_all_tasks_rows_are_stored() {
    for sql in [GROUPS, JOIN] {
        let gangs = Gangs { full: true, ..Gangs::default() };
        let runner = Arc::new(InProcess { gangs, ..InProcess::default() });
        let (rows, profile, _) = streams(sql, &runner).await;
        assert_eq!(rows, by_files(sql).await);
        let stored = of_medium(&profile, "files (no room for all tasks at once)");
        assert_eq!(stored.len(), 1, "{:?}", profile.stages);
        assert!(profile.stages.iter().all(|stage| stage.attempts == stage.tasks), "{profile:?}");
        assert!(runner.tried.lock().unwrap().values().all(|tried| *tried == 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_task_makes_both_stages_run_again_with_files() {
    for sql in [GROUPS, JOIN] {
        let expected = by_files(sql).await;
        let (_, profile, _) = streams(sql, &Arc::default()).await;
        let tasks: u32 = profile.stages.iter().map(|stage| stage.tasks).sum();
        let mut broken = 0;
        for (task, bytes) in (0..tasks).flat_map(|task| [(task, 0), (task, 100), (task, 1000)]) {
            let gangs = Gangs { kill: Some((task, bytes)), ..Gangs::default() };
            let runner = Arc::new(InProcess { gangs, ..InProcess::default() });
            let (rows, profile, notes) = streams(sql, &runner).await;
            assert_eq!(rows, expected, "task {task} was killed after {bytes} bytes");
            assert_eq!(runner.gangs.begun.load(Ordering::SeqCst), 1, "no stream runs again");
            let stored = of_medium(&profile, "files (stream broken)");
            broken += stored.len();
            for sender in stored {
                assert!(notes.iter().any(|note| note.contains("store their rows")), "{notes:?}");
                assert!(sender.attempts >= sender.tasks, "{sender:?}");
                assert_eq!(sender.discarded.len() as u32, sender.tasks, "{sender:?}");
            }
        }
        assert!(broken >= 6, "{broken}: {sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_without_a_lost_task_makes_both_stages_run_again() {
    for sql in [GROUPS, JOIN] {
        let gangs = Gangs { apart: true, ..Gangs::default() };
        let runner = Arc::new(InProcess { gangs, ..InProcess::default() });
        let query = streamed(sql, 3);
        let unexplained = Duration::from_millis(100);
        let stragglers = Stragglers { unexplained, ..options(&query).stragglers };
        let options = RunOptions { stragglers, ..options(&query) };
        let (rows, profile, notes) = run(&query, &runner, options).await.unwrap();
        assert_eq!(rows, by_files(sql).await);
        assert_eq!(of_medium(&profile, "files (stream broken)").len(), 1, "{profile:?}");
        assert!(notes.iter().any(|note| note.contains("store their rows")), "{notes:?}");
        assert_eq!(runner.gangs.live.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_are_lost_before_and_after_their_work_are_run_again() {
    for lose_late in [false, true] {
        for sql in [GROUPS, JOIN] {
            let runner = InProcess { lose: 1, lose_late, ..InProcess::default() };
            let (rows, profile, _) = streams(sql, &Arc::new(runner)).await;
            assert_eq!(rows, by_files(sql).await, "{lose_late}");
            assert_eq!(of_medium(&profile, "files (stream broken)").len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_retries_a_lost_task_ends_the_query() {
    let gangs = Gangs { kill: Some((4, 0)), ..Gangs::default() };
    let runner = Arc::new(InProcess { lose: 1, gangs, ..InProcess::default() });
    let query = streamed(GROUPS, 3);
    let options = RunOptions { retries: 0, ..options(&query) };
    let report = run(&query, &runner, options).await.unwrap_err();
    assert!(report.contains("SM-0401"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_ends_the_tasks_that_receive_and_those_that_send() {
    let sql =
        "select o_orderkey, l_partkey from orders full join lineitem on l_orderkey = o_orderkey
               limit 5";
    // Tasks that are not needed any more are cancelled.
    let (batches, profile) = answer(&streamed(sql, 3), Arc::default()).await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    assert_eq!(of_medium(&profile, "streams").len(), 1, "{:?}", profile.stages);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_a_task_that_sends_is_that_of_the_query() {
    let sql =
        "select l_suppkey, count(*) from lineitem where 1 / (l_linenumber - 1) >= 0 group by 1";
    let query = streamed(sql, 3);
    let report = run(&query, &Arc::default(), options(&query)).await.unwrap_err();
    assert!(report.contains("ivide by zero"), "{report}");
}
