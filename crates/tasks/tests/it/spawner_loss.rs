//! The spawner dies: queries whose sandboxes ended with it say so.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use snowmelt_tasks::{Driver, QueryRunner, TaskHost, WorkerLimits, definition};
use snowmelt_types::{ByteSize, Code, CpuMillis, ErrorReport, Report, Tenant};
use snowmelt_wire::{Definition, Drive};

use crate::rig::{PLENTY, Rig, until, with_node};

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
    QueryRunner::new(
        TaskHost::new(rig.node.clone()),
        "q".to_owned(),
        tenant,
        Instant::now(),
        workers,
        [],
    )
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
    let runner = runner(rig);
    let folder = std::env::temp_dir();
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
