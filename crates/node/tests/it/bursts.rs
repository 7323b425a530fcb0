//! The instances of a query: what its tasks need at first is asked for at once.

use std::time::Instant;

use snowmelt_node::{QueryRunner, UdfBinding, WorkerLimits};
use snowmelt_query::{PlannedTask, TaskRunner};
use snowmelt_types::{ByteSize, CpuMillis};

use crate::rig::{LIMIT, PLENTY, limits, load, with_node};

fn task(number: u32) -> PlannedTask {
    PlannedTask {
        task: number,
        partitions: vec![number],
        plan: Default::default(),
        files: Vec::new(),
        udfs: vec!["f".to_owned()],
        s3: Default::default(),
        bytes: 0,
    }
}

#[test]
fn the_first_task_asks_for_the_instances_of_all() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return event", &[]).await;
        let (name, limits) = ("f".to_owned(), limits());
        let udf = UdfBinding { name, unit, limits, load: load(), timeout: LIMIT };
        let workers = WorkerLimits { memory: ByteSize::mib(64), cpu: CpuMillis(1000) };
        let runner =
            QueryRunner::new(rig.node.clone(), "q".to_owned(), Instant::now(), workers, [udf]);
        let tasks: Vec<_> = (0..3).map(task).collect();
        runner.expect(&mut tasks.iter());
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
