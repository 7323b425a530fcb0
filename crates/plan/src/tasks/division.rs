//! How many tasks a stage is worth.

use std::collections::{BTreeMap, BTreeSet};

use snowmelt_execute::exchange::ExchangeReadExec;
use snowmelt_execute::tree::{self, address};
use snowmelt_wire::OutputPartition;

use super::outputs::Outputs;
use super::stage_reads::{is_known, read_whole};
use crate::estimate::likely_tasks::scan_bytes;
use crate::stages::Stage;

/// The bytes that a task should have to read. To start a task, and to read the small tables with
/// which it joins, costs about as much as to read a quarter of them.
pub const TASK_BYTES: u64 = 16 << 20;

/// The divisor of a worker's memory that gives the most bytes of its task. The bytes that are read
/// are compressed, and operators keep several forms of them.
const MEMORY_OF_BYTES: u64 = 32;

/// Returns the bytes that are worth a task: `asked`, or fewer for a worker of little memory. 0
/// bytes stay 0, and a memory of 0 is not known.
pub fn worth_a_task(asked: u64, worker_memory: u64) -> u64 {
    match worker_memory {
        0 => asked,
        memory => asked.min((memory / MEMORY_OF_BYTES).max(1)),
    }
}

/// How a stage is divided.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    /// The most tasks.
    pub workers: u32,
    /// Bytes of other stages' outputs that are worth a task.
    pub task_bytes: u64,
    /// Bytes of files that are worth a task (`scan_bytes` of the estimates); 0 means a task for each worker.
    pub scan_task_bytes: u64,
}

/// Returns the number of tasks that the bytes which a stage reads are worth, at least 1. A stage
/// that calls UDFs gets the most tasks, because the cost of a call is not known.
pub(crate) fn most_tasks(stage: &Stage, outputs: &Outputs, division: Division, calls: bool) -> u32 {
    let most = division.workers.max(1);
    if calls || !is_known(stage, outputs) {
        return most;
    }
    let mut scans = false;
    let mut scanned = 0;
    let mut exchanged = BTreeMap::new();
    let all: Vec<u32> = (0..tree::count(stage.body()) as u32).collect();
    let by_each = scanned_by_each(stage, &all);
    tree::visit(stage.body(), &all, &mut |leaf, _| {
        if let Some(scan) = tree::file_scan(leaf).filter(|_| !by_each.contains(&address(leaf))) {
            scans = true;
            scanned += scan_bytes(leaf, scan);
        }
        if let Some(read) = leaf.downcast_ref::<ExchangeReadExec>() {
            let written = outputs.get(&read.stage()).into_iter().flatten();
            let parts = written.flat_map(|output| output.partitions.iter());
            exchanged.insert(read.stage(), parts.map(OutputPartition::bytes).sum::<u64>());
        }
    });
    if scans && division.scan_task_bytes == 0 {
        return most;
    }
    if scans {
        // More tasks would each read all of these.
        let whole = read_whole(stage);
        exchanged.retain(|read, _| !whole.contains(read));
    }
    let of_scans = scanned.div_ceil(division.scan_task_bytes.max(1));
    let of_exchanges = exchanged.values().sum::<u64>().div_ceil(division.task_bytes.max(1));
    (of_scans.saturating_add(of_exchanges)).clamp(1, most.into()) as u32
}

/// The tables of which each partition of a stage reads all, such as the build side of a join.
fn scanned_by_each(stage: &Stage, partitions: &[u32]) -> BTreeSet<usize> {
    let [first, .., last] = *partitions else { return BTreeSet::new() };
    let of = |partition| {
        let mut found = BTreeSet::new();
        tree::visit(stage.body(), &[partition], &mut |leaf, groups| {
            let scan = tree::file_scan(leaf);
            if scan.is_some_and(|scan| scan.file_groups.len() == groups.len()) {
                found.insert(address(leaf));
            }
        });
        found
    };
    of(first).intersection(&of(last)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_of_little_memory_gets_fewer_bytes() {
        assert_eq!(worth_a_task(16 << 20, 1 << 30), 16 << 20);
        assert_eq!(worth_a_task(16 << 20, 64 << 20), 2 << 20);
        assert_eq!(worth_a_task(1 << 20, 64 << 20), 1 << 20);
        assert_eq!(worth_a_task(16 << 20, 0), 16 << 20);
        assert_eq!(worth_a_task(0, 64 << 20), 0);
        assert_eq!(worth_a_task(16 << 20, 1), 1);
    }
}
