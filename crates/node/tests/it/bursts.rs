//! The instances of a query: what its tasks need at first is asked for at once.

use std::time::Instant;

use snowmelt_node::{QueryRunner, UdfBinding, WorkerLimits};
use snowmelt_types::{ByteSize, CpuMillis, Tenant};

use crate::rig::{LIMIT, PLENTY, limits, load, with_node};

#[test]
fn the_first_task_asks_for_the_instances_of_all() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return event", &[]).await;
        let (name, limits) = ("f".to_owned(), limits());
        let udf = UdfBinding { name, unit, limits, load: load(), timeout: LIMIT, source: None };
        let workers = WorkerLimits { memory: ByteSize::mib(64), cpu: CpuMillis(1000) };
        let (node, query, tenant) = (rig.node.clone(), "q".to_owned(), Tenant::default());
        let runner = QueryRunner::new(node, query, tenant, Instant::now(), workers, [udf]);
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
