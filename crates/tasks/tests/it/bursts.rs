//! Many instances at once: what the tasks of a query need at first is asked for by one request, and
//! the part of a burst waits for its calls.

use std::time::{Duration, Instant};

use snowmelt_node::InstanceLimits;
use snowmelt_tasks::agent::Agent;
use snowmelt_tasks::agent::api::{FunctionCode, JobPart};
use snowmelt_tasks::{QueryRunner, TaskHost, UdfBinding, WorkerLimits};
use snowmelt_types::{ByteSize, CpuMillis, JobId, Tenant};
use snowmelt_wire::{Mode, SourceCode};

use crate::rig::{LIMIT, PLENTY, limits, load, with_node};

/// A part of one rank.
fn part(job: &JobId, start_within: Duration) -> JobPart {
    let text = "def handler(event): return event".to_owned();
    JobPart {
        secrets: Default::default(),
        job: job.clone(),
        function: FunctionCode {
            tenant: Tenant::default(),
            code: SourceCode::Source { file: "handler.py".into(), text },
            program: None,
            packed: None,
            handler: "handler".to_owned(),
            mode: Mode::Function,
            packages: Vec::new(),
            imports: Vec::new(),
            files: Default::default(),
            secrets: None,
            batches: None,
            limits: InstanceLimits::default(),
        },
        place: None,
        files: Vec::new(),
        size: 1,
        first: 0,
        count: 1,
        network: None,
        hosts: Vec::new(),
        start_within_ms: u64::try_from(start_within.as_millis()).unwrap(),
    }
}

/// As by a control that was restarted. What is left of the time of the first part is not that of
/// the second one.
#[test]
fn a_part_that_is_opened_again_replaces_the_one_that_was_not_called() {
    with_node(PLENTY, async |rig| {
        let agent = Agent::new(rig.node.clone(), None);
        let job = JobId::new();
        let short = Duration::from_secs(2);
        agent.open(part(&job, short)).await.unwrap();
        agent.open(part(&job, LIMIT)).await.unwrap();
        assert_eq!(rig.node.figures().busy, 1);
        tokio::time::sleep(short + Duration::from_millis(500)).await;
        agent.ready(&job, LIMIT).await.unwrap();
        agent.close(&job);
    });
}

/// The request of an earlier control still loads the code: its connection was lost, which this host
/// has not noticed.
#[test]
fn a_part_that_still_loads_for_an_earlier_control_is_replaced_once_it_has_loaded() {
    with_node(PLENTY, async |rig| {
        let agent = Agent::new(rig.node.clone(), None);
        let job = JobId::new();
        let text = "import time\ntime.sleep(1)\ndef handler(event): return event".to_owned();
        let mut slow = part(&job, LIMIT);
        slow.function.code = SourceCode::Source { file: "handler.py".into(), text };
        agent.open(slow).await.unwrap();
        let again = agent.open(part(&job, LIMIT));
        let (loaded, opened) = tokio::join!(agent.ready(&job, LIMIT), again);
        loaded.unwrap();
        opened.unwrap();
        assert_eq!(rig.node.figures().busy, 1);
        agent.ready(&job, LIMIT).await.unwrap();
        // One that is called stays.
        let calls = r#"{"events": [1], "timeout_ms": 60000, "lease_ms": 60000}"#;
        agent.call(&job, serde_json::from_str(calls).unwrap()).unwrap();
        let refused = agent.open(part(&job, LIMIT)).await.unwrap_err();
        assert!(refused.message.contains("has a part here already"), "{}", refused.message);
        agent.close(&job);
    });
}

#[test]
fn the_first_task_asks_for_the_instances_of_all() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return event", &[]).await;
        let name = "f".to_owned();
        let limits = limits();
        let udf = UdfBinding { name, unit, limits, load: load(), timeout: LIMIT, source: None };
        let workers = WorkerLimits { memory: ByteSize::mib(64), cpu: CpuMillis(1000) };
        let (host, query, tenant) =
            (TaskHost::new(rig.node.clone()), "q".to_owned(), Tenant::default());
        let runner = QueryRunner::new(host, query, tenant, Instant::now(), workers, [udf]);
        runner.expect(&["f".to_owned(), "f".to_owned(), "f".to_owned()]);
        let mut held = vec![runner.connect("f").await.unwrap()];
        assert_eq!(rig.node.figures().busy, 3, "one request for three tasks");
        for _ in 1..3 {
            held.push(runner.connect("f").await.unwrap());
        }
        assert_eq!(rig.node.figures().busy, 3);
        // A task that is run again.
        held.push(runner.connect("f").await.unwrap());
        assert_eq!((rig.node.figures().busy, runner.starts()), (4, (4, 0)));
        drop(runner);
        assert_eq!(rig.node.figures().busy, 0);
    });
}
