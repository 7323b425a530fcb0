//! The spawner dies: idle and prewarmed instances and zygotes are dropped, and made again; queries
//! whose sandboxes ended with it say so.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use snowmelt_api::Start;
use snowmelt_node::{Driver, InstanceLease, QueryRunner, WorkerLimits, definition};
use snowmelt_types::{ByteSize, Code, CpuMillis, ErrorReport, Report, Tenant};
use snowmelt_wire::{Definition, Drive};

use crate::rig::{PLENTY, Rig, call, limits, load, until, with_node};

fn signal_spawner(rig: &Rig, signal: Signal) {
    for pid in rig.node.spawner().processes {
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
    }
}

fn kill_spawner(rig: &Rig) {
    signal_spawner(rig, Signal::KILL);
}

/// The processes below one that run a query worker and have not ended. A zombie with threads is one
/// of which other threads have not ended: it still has its sockets.
fn workers_below(pid: u32) -> Vec<Pid> {
    let read = |pid: u32, file| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
    let children = read(pid, format!("task/{pid}/children")).unwrap_or_default();
    let below = children.split_whitespace().flat_map(|child| workers_below(child.parse().unwrap()));
    let status = read(pid, "stat".to_owned()).unwrap_or_default();
    let fields = status.rsplit_once("(snowmelt-query) ").map(|(_, fields)| fields);
    let fields: Vec<_> = fields.into_iter().flat_map(|fields| fields.split(' ')).collect();
    let is_worker = fields.len() > 17 && !(fields[0] == "Z" && fields[17] == "1");
    let own = Pid::from_raw(i32::try_from(pid).unwrap()).filter(|_| is_worker);
    own.into_iter().chain(below).collect()
}

fn workers(rig: &Rig) -> Vec<Pid> {
    rig.node.spawner().processes.into_iter().flat_map(workers_below).collect()
}

fn runner(rig: &Rig) -> QueryRunner {
    let workers = WorkerLimits { memory: ByteSize::mib(64), cpu: CpuMillis(1000) };
    let tenant = Tenant::default();
    QueryRunner::new(rig.node.clone(), "q".to_owned(), tenant, Instant::now(), workers, [])
}

async fn parse(rig: &Rig) -> Result<Definition, ErrorReport> {
    definition(&runner(rig), "select 1", 1).await
}

async fn begin(rig: &Rig) -> snowmelt_node::Result<()> {
    let drive: Drive = serde_json::from_value(json!({
        "query": "q", "sql": "select 1", "params": [], "csv": [], "tables": {}, "udfs": [], "aws": {}, "workers": 1,
        "scan_task_bytes": 0, "exchange": {}, "exchange_folder": "", "threads": 1, "memory_bytes": 0, "retries": 0, "elapsed_us": 0, "packages_us": 0,
    }))
    .unwrap();
    let (runner, folder) = (runner(rig), std::env::temp_dir());
    let begun = Driver::begin(&runner, drive, Instant::now(), ByteSize::mib(64), folder).await;
    begun.map(|(driver, _)| driver.give_back())
}

/// A worker is idle that has ended without that being known: its spawner, which would report it, is
/// stopped. So connecting to it is refused.
async fn with_a_worker_that_ended_unnoticed(rig: &Rig) {
    assert!(matches!(parse(rig).await, Ok(Definition::Other)));
    signal_spawner(rig, Signal::STOP);
    let found = workers(rig);
    assert!(!found.is_empty());
    for worker in found {
        kill_process(worker, Signal::KILL).unwrap();
    }
    until("the worker has ended", || workers(rig).is_empty()).await;
}

async fn answers(mut lease: InstanceLease) {
    assert_eq!(call(&mut lease, json!("again")).await.unwrap(), "again");
    lease.give_back();
}

#[test]
fn functions_run_again_after_the_spawner_was_killed_again_and_again() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return event", &["sqlite3"]).await;
        for replaced in 1..=3 {
            rig.node.warm(&unit).await;
            answers(rig.lease(&unit, &limits()).await).await;
            let idle = rig.lease(&unit, &limits()).await;
            assert_eq!(idle.start, Start::Idle);
            idle.give_back();
            kill_spawner(&rig);
            // At once: kept instances may not know yet that they are dead.
            loop {
                let mut lease = rig.lease(&unit, &limits()).await;
                match call(&mut lease, json!("again")).await {
                    Err(error) => assert_eq!(error.report().known_code(), Code::SPAWNER_LOST),
                    Ok(answer) if rig.node.spawner().replaced == replaced => {
                        assert_eq!(answer, "again");
                        break;
                    }
                    // One that had not been ended yet.
                    Ok(_) => {}
                }
            }
        }
    });
}

#[test]
fn a_call_under_way_is_told_that_the_spawner_died() {
    with_node(PLENTY, async |rig| {
        let text = "import time\ndef handler(event):\n    print('runs', flush=True)\n\
            \x20   time.sleep(600)\n";
        let unit = rig.unit(text, &[]).await;
        let mut lease = rig.lease(&unit, &limits()).await;
        let killed = async {
            // Enough time for the call to begin.
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            kill_spawner(&rig);
        };
        let (answer, ()) = tokio::join!(call(&mut lease, json!(null)), killed);
        let report = answer.unwrap_err().report();
        assert_eq!(report.known_code(), Code::SPAWNER_LOST, "{report}");
        assert!(report.hint.is_some_and(|hint| hint.contains("again")));
    });
}

#[test]
fn prewarmed_instances_are_started_again() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return event", &[]).await;
        rig.node.prewarm(&unit, &limits(), &load(), 2);
        until("two are there", || rig.node.figures().prewarmed == 2).await;
        kill_spawner(&rig);
        until("the spawner is there again", || rig.node.spawner().replaced == 1).await;
        until("two are there again", || rig.node.figures().prewarmed == 2).await;
        let lease = rig.lease(&unit, &limits()).await;
        assert_eq!(lease.start, Start::Prewarmed);
        answers(lease).await;
    });
}

#[test]
fn a_query_that_cannot_reach_its_driver_is_told_that_the_spawner_died() {
    with_node(PLENTY, async |rig| {
        with_a_worker_that_ended_unnoticed(&rig).await;
        // The first poll of the query connects; then the spawner dies.
        let (begun, ()) = tokio::join!(begin(&rig), async { kill_spawner(&rig) });
        let report = begun.unwrap_err().report();
        assert_eq!(report.known_code(), Code::SPAWNER_LOST, "{report}");
        assert!(report.hint.is_some_and(|hint| hint.contains("again")));
        begin(&rig).await.unwrap();
    });
}

#[test]
fn a_statement_that_cannot_reach_its_parser_is_told_that_the_spawner_died() {
    with_node(PLENTY, async |rig| {
        with_a_worker_that_ended_unnoticed(&rig).await;
        let (parsed, ()) = tokio::join!(parse(&rig), async { kill_spawner(&rig) });
        let report = parsed.unwrap_err();
        assert_eq!(report.known_code(), Code::SPAWNER_LOST, "{report}");
        assert!(matches!(parse(&rig).await, Ok(Definition::Other)));
    });
}
