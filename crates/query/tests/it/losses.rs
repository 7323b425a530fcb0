//! Outputs that are lost, and workers that are slow or say nothing: the answer stays the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::util::pretty::pretty_format_batches;
use snowmelt_api::{DiscardedAttempt, Profile};
use snowmelt_query::{RunOptions, Stragglers, plan};

use crate::runner::{InProcess, answer, options, recorded, spec};

/// Two scans, a join of both, and groups of that: four stages, of which the last gives the results.
const JOIN: &str = "select o_orderpriority, count(*), sum(l_quantity) from orders \
                    left join lineitem on l_orderkey = o_orderkey group by 1 order by 1";

/// Groups of a scan, in two stages of three tasks each.
const GROUPS: &str = "select l_suppkey, count(*) from lineitem group by 1 order by 1";

async fn expected(sql: &str) -> String {
    let (batches, _) = answer(&spec(sql, 3), Arc::default()).await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

/// The answer with three workers, its profile and the notes, or the error.
async fn run(
    sql: &str,
    runner: &Arc<InProcess>,
    options: RunOptions,
) -> Result<(String, Profile, Vec<String>), String> {
    let planned = plan(&spec(sql, 3)).await.unwrap();
    let (batches, profile, notes) = recorded(planned, options, runner).await?;
    Ok((pretty_format_batches(&batches).unwrap().to_string(), profile, notes))
}

fn three() -> RunOptions {
    options(&spec(JOIN, 3))
}

fn tried(runner: &InProcess) -> Vec<u32> {
    runner.tried.lock().unwrap().values().copied().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_output_is_made_again_for_its_readers() {
    let expected = expected(GROUPS).await;
    let runner = InProcess { vanish: [(3, vec![1])].into(), ..InProcess::default() };
    let runner = Arc::new(runner);
    let (found, profile, notes) = run(GROUPS, &runner, three()).await.unwrap();
    assert_eq!(found, expected);
    let tried = tried(&runner);
    assert_eq!((tried[0], tried[1], tried[2]), (1, 2, 1), "only the lost one is made again");
    assert!(tried[3] == 2 && tried.len() == 6, "{tried:?}");
    assert!(notes.iter().any(|note| note.contains("task 1 is run again")), "{notes:?}");
    let stages = &profile.stages;
    assert_eq!((stages[0].tasks, stages[0].remakes, stages[0].attempts), (3, 1, 4));
    assert!(
        stages[1]
            .discarded
            .iter()
            .any(|discarded| discarded.task == 3 && discarded.why == "inputs lost")
    );
    assert_eq!(profile.totals.tasks, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_that_were_released_are_made_again_as_well() {
    let expected = expected(JOIN).await;
    let (_, profile) = answer(&spec(JOIN, 3), Arc::default()).await.unwrap();
    let of = |stage: usize| profile.stages[..stage].iter().map(|stage| stage.tasks).sum::<u32>();
    let join = of(2);
    let last = of(3);
    let all = of(4);
    assert!(profile.stages.len() == 4 && profile.stages[2].reads.len() == 2, "{profile:?}");
    // The outputs of the join are lost when the scans' are released already.
    let runner =
        InProcess { vanish: [(last, (join..last).collect())].into(), ..InProcess::default() };
    let runner = Arc::new(runner);
    let (found, profile, _) = run(JOIN, &runner, three()).await.unwrap();
    assert_eq!(found, expected);
    let tried = tried(&runner);
    assert_eq!(tried.len() as u32, all);
    assert!(tried[..last as usize].iter().all(|tried| *tried == 2), "{tried:?}");
    let remakes: Vec<u32> = profile.stages[..3].iter().map(|stage| stage.remakes).collect();
    assert_eq!(remakes.iter().sum::<u32>(), last);
    assert!(runner.outputs.lock().unwrap().is_empty(), "all outputs are released at the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_random_rows_that_are_made_again_start_anew() {
    // Rows go to the partition of their random group: those of two runs must not be mixed.
    let sql = "select sum(c) from (select cast(floor(random() * 40) as bigint) g, count(*) c \
               from lineitem group by 1)";
    let expected = expected("select count(*) from lineitem").await;
    let number = |table: &str| {
        let digits = table.lines().nth(3).unwrap();
        digits.trim_matches(['|', ' ']).to_owned()
    };
    for reader in [3, 4, 5] {
        let runner = InProcess { vanish: [(reader, vec![0, 2])].into(), ..InProcess::default() };
        match run(sql, &Arc::new(runner), three()).await {
            Ok((found, ..)) => assert_eq!(number(&found), number(&expected)),
            // Other readers may have given their results before.
            Err(report) => assert!(report.contains("after rows that depend on it"), "{report}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_that_are_lost_again_and_again_end_the_query() {
    // Every reader finds its inputs gone, at each attempt.
    let runner = Arc::new(InProcess { forget: true, ..InProcess::default() });
    let report = run(GROUPS, &runner, three()).await.unwrap_err();
    assert!(report.contains("SM-0401") && report.contains("lost"), "{report}");
    assert!(tried(&runner).iter().all(|tried| *tried <= 17), "{:?}", tried(&runner));
}

/// Any task that runs longer than a done one is slow.
fn impatient() -> RunOptions {
    let stragglers = Stragglers { factor: 1.0, at_least: Duration::ZERO, ..Stragglers::default() };
    RunOptions { stragglers, ..three() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_task_is_overtaken_by_a_second_attempt() {
    let expected = expected(GROUPS).await;
    let runner = Arc::new(InProcess { freeze: vec![1], ..InProcess::default() });
    let (found, profile, notes) = run(GROUPS, &runner, impatient()).await.unwrap();
    assert_eq!(found, expected);
    assert!(notes.iter().any(|note| note.contains("task 1 is slow")), "{notes:?}");
    assert!(profile.stages[0].twins >= 1 && profile.stages[0].tasks == 3);
    let overtaken =
        |it: &DiscardedAttempt| it.task == 1 && it.why == "overtaken" && it.attempt == 0;
    assert!(profile.stages[0].discarded.iter().any(overtaken), "{:?}", profile.stages[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_with_functions_of_the_user_are_not_raced() {
    let sql = "select double_it(l_orderkey) % 7, count(*) from lineitem group by 1";
    let (_, profile, _) = run(sql, &Arc::default(), impatient()).await.unwrap();
    let calls = profile.stages.iter().find(|stage| stage.reads.is_empty()).unwrap();
    assert_eq!((calls.twins, calls.attempts), (0, calls.tasks));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_says_nothing_is_lost() {
    // Groups, and rows that are passed on while their task runs: the second attempt skips them.
    for sql in [GROUPS, "select l_orderkey, l_linenumber from lineitem where l_quantity < 2"] {
        let silence = Duration::from_secs(2);
        let stragglers = Stragglers { racing: false, silence, ..Stragglers::default() };
        // A worker that only had no processor for so long is run again, too.
        let options = RunOptions { stragglers, retries: 1_000, ..three() };
        let runner = Arc::new(InProcess { freeze: vec![0], ..InProcess::default() });
        let (found, profile, notes) = run(sql, &runner, options).await.unwrap();
        let sorted = |table: &str| {
            let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&found), sorted(&expected(sql).await));
        assert!(notes.iter().any(|note| note.contains("reported nothing")), "{notes:?}");
        assert!(profile.stages[0].retries >= 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_profile_has_the_stages() {
    let (_, profile) = answer(&spec(JOIN, 3), Arc::default()).await.unwrap();
    let stages = &profile.stages;
    let media: Vec<&str> = stages.iter().map(|stage| stage.medium.as_str()).collect();
    assert_eq!(media, ["files", "files", "files", "driver"]);
    let keys: BTreeMap<u32, &[String]> =
        stages.iter().map(|stage| (stage.stage, stage.keys.as_slice())).collect();
    assert!(keys[&0].iter().chain(keys[&1]).all(|key| key.ends_with("orderkey")), "{keys:?}");
    assert_eq!(keys[&3].len(), 0);
    for stage in stages {
        assert_eq!(stage.attempts, stage.tasks);
        assert!(stage.rows > 0 && stage.bytes_sent > 0, "{stage:?}");
        assert_eq!(stage.bytes_read > 0, stage.reads.is_empty());
        let written: u64 = stage.reads.iter().map(|read| stages[*read as usize].bytes_sent).sum();
        assert_eq!(stage.bytes_received, written, "each row is read by one task");
    }
    let largest = stages[0].largest.as_ref().unwrap();
    assert!(largest.of == 3 && largest.rows >= largest.median_rows && largest.share >= 1.0 / 3.0);
    let lanes = profile.lanes.iter().filter(|lane| lane.stage == 2).count();
    assert_eq!(lanes as u32, stages[2].tasks);
}
