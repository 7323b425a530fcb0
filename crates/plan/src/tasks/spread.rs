//! Divides a partition with far more rows than the others among several tasks.
//!
//! All rows with the same key are in one partition, so a frequent key makes one task of a join slow.
//! Several tasks can run the same partition if each reads other rows of one input, the probe side,
//! and all rows of the others: the output of a probe row depends on no other probe row. The rows are
//! divided by the tasks that wrote them.
//!
//! That is right where all operators from the probe side up to the output treat each row alone:
//!
//! - filters, projections and partial aggregates: groups of several tasks are added up above;
//! - inner joins: each pair has one probe row, so it is found once;
//! - right, right semi, right anti and right mark joins: each probe row is returned, or not, because
//!   of the build rows, which each task has all of.
//!
//! Not for joins that return rows of the build side (left, full, left semi, left anti, left mark):
//! a task knows only whether its own probe rows match them. Not for a final aggregate, a window or a
//! limit. The output must be split by keys: a reader takes a partition from all tasks that wrote it.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use snowmelt_execute::exchange::{ExchangeReadExec, output_split};
use snowmelt_execute::tree::{count, visit};

use super::outputs::{Outputs, TaskOutput};
use crate::stages::Stage;

/// The factor from which on a partition is divided: the bytes of its probe side, relative to the
/// median partition's.
const UNEVEN: u64 = 4;

/// The partitions of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskPartitions {
    pub(crate) partitions: Vec<u32>,
    /// A stage and those of its tasks whose outputs this task reads: other tasks read the rest.
    pub(crate) only: Option<(u32, BTreeSet<u32>)>,
}

/// Shares of a stage whose largest partition is divided; `None` if that is not possible or not
/// worth it. At most `most` shares; each reads at least `least` bytes of a divided partition.
pub(crate) fn spread(
    stage: &Stage,
    outputs: &Outputs,
    most: u32,
    least: u64,
) -> Option<Vec<TaskPartitions>> {
    let probe = probe_side(stage)?;
    let written = outputs.get(&probe)?;
    let partitions = count(stage.body());
    let mut beside = vec![0; partitions];
    for read in read_by_partition(stage.body(), partitions) {
        let other = outputs.get(&read).filter(|_| read != probe);
        let sizes = sizes(other.map_or(&[], Vec::as_slice), partitions);
        beside.iter_mut().zip(sizes).for_each(|(sum, size)| *sum += size);
    }
    divide(probe, written, &sizes(written, partitions), &beside, most, least)
}

/// The stages of which a task reads only its own partitions.
fn read_by_partition(body: &Arc<dyn ExecutionPlan>, partitions: usize) -> BTreeSet<u32> {
    let last = [(partitions as u32).saturating_sub(1)];
    let mut found = BTreeSet::new();
    visit(body, &last, &mut |leaf, partitions| {
        let read = leaf.downcast_ref::<ExchangeReadExec>().filter(|_| partitions == last);
        found.extend(read.map(ExchangeReadExec::stage));
    });
    found
}

/// The stage whose rows may be divided.
fn probe_side(stage: &Stage) -> Option<u32> {
    let split = output_split(&stage.plan).map(|split| split.partitioning());
    let is_split = stage.exchange().is_some() && matches!(split, Some(Partitioning::Hash(..)));
    let (probe, joined) = is_split.then(|| row_by_row(stage.body())).flatten()?;
    // One leaf: what a task does not read of it, it must not read elsewhere.
    (joined && leaves_of(stage.body(), probe) == 1).then_some(probe)
}

/// The stage below operators that treat each of its rows alone, and whether a join is among them.
fn row_by_row(node: &Arc<dyn ExecutionPlan>) -> Option<(u32, bool)> {
    if let Some(read) = node.downcast_ref::<ExchangeReadExec>() {
        let by_keys = matches!(node.output_partitioning(), Partitioning::Hash(_, 2..));
        return by_keys.then(|| (read.stage(), false));
    }
    let children = node.children();
    if node.fetch().is_some() {
        return None;
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let (probe, _) = row_by_row(children[1])?;
        return (by_probe_row(join.join_type()) && !join.null_aware).then_some((probe, true));
    }
    let partial = node.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        *aggregate.mode() == AggregateMode::Partial && aggregate.limit_options().is_none()
    });
    let passes = partial
        || node.is::<CooperativeExec>()
        || node.is::<FilterExec>()
        || node.is::<ProjectionExec>();
    passes.then(|| row_by_row(children[0])).flatten()
}

/// True for joins whose output is found for each probe row, the right ones, alone.
fn by_probe_row(join: &JoinType) -> bool {
    match join {
        JoinType::Inner
        | JoinType::Right
        | JoinType::RightSemi
        | JoinType::RightAnti
        | JoinType::RightMark => true,
        JoinType::Left
        | JoinType::Full
        | JoinType::LeftSemi
        | JoinType::LeftAnti
        | JoinType::LeftMark => false,
    }
}

fn leaves_of(node: &Arc<dyn ExecutionPlan>, stage: u32) -> usize {
    let own = node.downcast_ref::<ExchangeReadExec>().is_some_and(|read| read.stage() == stage);
    let below = node.children().into_iter().map(|child| leaves_of(child, stage)).sum::<usize>();
    usize::from(own) + below
}

/// The bytes of each partition.
fn sizes(written: &[TaskOutput], partitions: usize) -> Vec<u64> {
    let mut sizes = vec![0; partitions];
    for part in written.iter().flat_map(|output| output.partitions.iter()) {
        if let Some(size) = sizes.get_mut(part.partition as usize) {
            *size += part.bytes();
        }
    }
    sizes
}

/// Divides the partition that is largest on the probe side. `sizes` are the bytes of the probe
/// side's partitions, `beside` those of the other inputs, of which each task of a divided partition
/// reads all.
fn divide(
    probe: u32,
    written: &[TaskOutput],
    sizes: &[u64],
    beside: &[u64],
    most: u32,
    least: u64,
) -> Option<Vec<TaskPartitions>> {
    let (largest, size) = sizes.iter().enumerate().max_by_key(|(_, size)| **size)?;
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let median = sorted[(sorted.len() - 1) / 2];
    // At least one task is left for the other partitions.
    let most = (most as usize).min(sizes.len());
    if most < 3 || *size <= UNEVEN * median {
        return None;
    }
    let whole = sizes.iter().zip(beside).map(|(size, beside)| size + beside).enumerate();
    let others: Vec<(u32, u64)> = whole
        .filter(|(partition, _)| *partition != largest)
        .map(|(partition, bytes)| (partition as u32, bytes))
        .collect();
    let pieces = pieces(*size, beside[largest], others.iter().map(|(_, bytes)| bytes).sum(), most);
    let of_largest = written.iter().filter_map(|output| {
        let part = output.partitions.iter().find(|part| part.partition as usize == largest)?;
        Some((output.task, part.bytes()))
    });
    let mut pieces = pack(of_largest.collect(), pieces.min((*size / least.max(1)) as usize));
    if pieces.len() < 2 {
        return None;
    }
    // A task without rows of this partition may have some if it runs again.
    let has_none = |task: &u32| !pieces.iter().any(|piece| piece.contains(task));
    let rest: Vec<u32> = written.iter().map(|output| output.task).filter(has_none).collect();
    pieces[0].extend(rest);
    let others = pack(others, most - pieces.len());
    let whole = others.into_iter().map(|partitions| TaskPartitions { partitions, only: None });
    let divided = pieces.into_iter().map(|tasks| TaskPartitions {
        partitions: vec![largest as u32],
        only: Some((probe, tasks.into_iter().collect())),
    });
    Some(divided.chain(whole).collect())
}

/// Returns the number of tasks for the largest partition, of `most` tasks in all, that leaves the
/// least bytes to the task which reads most.
fn pieces(size: u64, beside: u64, others: u64, most: usize) -> usize {
    let longest = |pieces: &usize| {
        let own = *pieces as u64;
        let rest = (most - pieces) as u64;
        (size / own + beside).max(others / rest)
    };
    (1..most).min_by_key(longest).unwrap_or(1)
}

/// Packs items with sizes into at most `groups` groups of about the same size, none of them empty,
/// each in ascending order. The largest item is packed first, and each item goes to the smallest
/// group.
fn pack(mut items: Vec<(u32, u64)>, groups: usize) -> Vec<Vec<u32>> {
    items.sort_by_key(|(item, size)| (std::cmp::Reverse(*size), *item));
    let mut packed: Vec<(u64, Vec<u32>)> = vec![(0, Vec::new()); groups];
    for (item, size) in items {
        let Some(least) = packed.iter_mut().min_by_key(|(sum, group)| (*sum, group.len())) else {
            break;
        };
        least.0 += size;
        least.1.push(item);
    }
    let groups = packed.into_iter().map(|(_, mut group)| {
        group.sort_unstable();
        group
    });
    groups.filter(|group| !group.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snowmelt_wire::OutputPartition;

    use super::*;

    /// Outputs of tasks, with the given bytes in each partition.
    fn written(tasks: &[Vec<u64>]) -> Vec<TaskOutput> {
        let output = |(task, sizes): (usize, &Vec<u64>)| {
            let part = |(partition, size): (usize, &u64)| OutputPartition {
                partition: partition as u32,
                rows: *size,
                ranges: vec![(0, *size)],
                ..OutputPartition::default()
            };
            let parts = sizes.iter().enumerate().filter(|(_, size)| **size > 0).map(part);
            let partitions = Arc::new(parts.collect());
            TaskOutput { task: task as u32, attempt: 0, partitions, objects: None }
        };
        tasks.iter().enumerate().map(output).collect()
    }

    fn shares(
        tasks: &[Vec<u64>],
        partitions: usize,
        most: u32,
        least: u64,
    ) -> Option<Vec<TaskPartitions>> {
        let written = written(tasks);
        divide(7, &written, &sizes(&written, partitions), &vec![0; partitions], most, least)
    }

    #[test]
    fn the_other_inputs_count_for_the_number_of_tasks() {
        // Seven eighths of the build side are in the other partitions.
        assert_eq!(pieces(180, 19, 148, 8), 5);
        assert_eq!(pieces(180, 0, 20, 8), 7);
        // A build side that is as large in this partition gains nothing from more tasks.
        assert_eq!(pieces(10, 1_000, 30_000, 8), 1);
    }

    #[test]
    fn a_partition_with_most_bytes_is_divided_by_the_tasks_that_wrote_it() {
        let tasks = [vec![10, 900, 10, 10], vec![10, 500, 10, 10], vec![10, 400, 10, 10]];
        let found = shares(&tasks, 4, 4, 1).unwrap();
        let only = |tasks: &[u32]| Some((7, tasks.iter().copied().collect()));
        assert_eq!(found.len(), 4);
        assert!(found[..3].iter().all(|share| share.partitions == [1]));
        assert_eq!(found[0].only, only(&[0]));
        assert_eq!(found[3], TaskPartitions { partitions: vec![0, 2, 3], only: None });
    }

    #[test]
    fn even_small_or_single_outputs_are_not_divided() {
        let even = [vec![100, 120, 90], vec![100, 130, 90]];
        assert!(shares(&even, 3, 3, 1).is_none());
        let uneven = [vec![10, 900, 10], vec![10, 900, 10]];
        assert!(shares(&uneven, 3, 3, 1).is_some());
        assert!(shares(&uneven, 3, 2, 1).is_none(), "no task is left for the others");
        assert!(shares(&uneven, 3, 3, 1_000).is_none(), "too few bytes");
        assert!(shares(&[vec![10, 900, 10]], 3, 3, 1).is_none(), "one task wrote it");
        assert!(shares(&[], 0, 3, 1).is_none());
    }

    proptest! {
        #[test]
        fn each_part_of_each_partition_is_read_once(
            tasks in prop::collection::vec(prop::collection::vec(0u64..50, 6), 1..6),
            (large, more) in (0usize..6, 0u64..2_000),
            most in 1u32..9,
        ) {
            let mut tasks = tasks;
            tasks.iter_mut().for_each(|sizes| sizes[large] += more);
            let Some(shares) = shares(&tasks, 6, most, 1) else { return Ok(()) };
            prop_assert!(shares.len() <= most as usize);
            for task in 0..tasks.len() {
                for partition in 0..6 {
                    let readers = shares.iter().filter(|share| {
                        let reads = |(_, only): &(u32, BTreeSet<u32>)| only.contains(&(task as u32));
                        share.partitions.contains(&partition) && share.only.as_ref().is_none_or(reads)
                    });
                    // Also of a task that wrote nothing there: it may if it runs again.
                    prop_assert_eq!(readers.count(), 1, "{} {}", task, partition);
                }
            }
        }
    }
}
