//! The stages in the profile, from the records of the tasks.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::Partitioning;
use snowmelt_api::{LargestPartition, StageProfile};
use snowmelt_execute::exchange::{ExchangeReach, output_split};
use snowmelt_execute::tree::{count, visit_scans};
use snowmelt_plan::stages::Stage;
use snowmelt_plan::tables::left_out as left_out_of;

use crate::driver::tasks::{Finished, TaskRecords};

/// A profile for each stage.
pub(crate) fn stage_profiles(stages: &[Stage], records: &TaskRecords) -> Vec<StageProfile> {
    (0..stages.len()).map(|index| profile(stages, index, records)).collect()
}

fn profile(stages: &[Stage], index: usize, records: &TaskRecords) -> StageProfile {
    let stage = &stages[index];
    let finished: Vec<&Finished> = tasks_of(index, records).collect();
    let sum = |of: fn(&Finished) -> u64| finished.iter().map(|task| of(task)).sum::<u64>();
    let counts = records.counts.get(&index).copied().unwrap_or_default();
    let discarded = records.discarded.iter().filter(|(stage, _)| *stage == index);
    let (keys, partitions) = split(stage);
    StageProfile {
        stage: index as u32,
        reads: stage.reads.clone(),
        medium: medium(stages, index, records),
        keys,
        tasks: finished.len() as u32,
        attempts: counts.attempts,
        retries: counts.retries,
        remakes: counts.remakes,
        twins: counts.twins,
        rows: sum(|task| task.result.done.rows),
        left_out: left_out(stage),
        bytes_read: sum(|task| task.result.done.progress.bytes_read),
        bytes_received: sum(|task| task.received),
        bytes_sent: sum(|task| task.bytes),
        from_us: finished.iter().map(|task| task.result.worker.asked_us).min().unwrap_or(0),
        to_us: finished.iter().map(|task| task.result.worker.done_us).max().unwrap_or(0),
        cpu_us: sum(cpu_us),
        peak_memory: finished.iter().map(|task| peak_memory(task)).max().unwrap_or(0),
        largest: largest(&finished, partitions),
        discarded: discarded.map(|(_, attempt)| attempt.clone()).collect(),
    }
}

/// Row groups that planning left out of the scans of a stage.
fn left_out(stage: &Stage) -> u64 {
    let all: Vec<u32> = (0..count(stage.body()) as u32).collect();
    let mut sum = 0;
    visit_scans(stage.body(), &all, &mut |scan, _| {
        let parts = scan.file_groups.iter().flat_map(|group| group.files());
        sum += parts.map(left_out_of).sum::<u64>();
    });
    sum
}

fn tasks_of(stage: usize, records: &TaskRecords) -> impl Iterator<Item = &Finished> {
    records.finished.values().filter(move |task| task.stage == stage)
}

fn medium(stages: &[Stage], index: usize, records: &TaskRecords) -> String {
    // A lane names its host if the query has several.
    let hosts = |stage| tasks_of(stage, records).map(|task| task.result.worker.host.as_deref());
    let stored = match hosts(index).flatten().next() {
        Some(_) => ExchangeReach::Hosts,
        None => ExchangeReach::OneHost,
    };
    match (stages[index].exchange(), records.not_streamed.get(&index)) {
        (None, _) => "driver".to_owned(),
        (Some(_), Some(why)) => format!("{} ({why})", stored.files()),
        (Some(exchange), None) => {
            let reads = |stage: &Stage| stage.reads.contains(&(index as u32));
            let reader = stages.iter().position(reads).unwrap_or(index);
            let streamed: BTreeSet<_> = hosts(index).chain(hosts(reader)).collect();
            let streamed =
                if streamed.len() > 1 { ExchangeReach::Hosts } else { ExchangeReach::OneHost };
            exchange.text(stored, streamed)
        }
    }
}

/// The keys by which the output of a stage is split, and the number of its partitions.
fn split(stage: &Stage) -> (Vec<String>, usize) {
    let split = output_split(&stage.plan).map(|split| split.partitioning());
    let Some(split) = split.filter(|_| stage.queue().is_none()) else {
        return (Vec::new(), count(stage.body()));
    };
    let keys = match split {
        Partitioning::Hash(keys, _) => keys.as_slice(),
        _ => &[],
    };
    let name = |key: &std::sync::Arc<dyn datafusion::physical_expr::PhysicalExpr>| {
        let column = key.downcast_ref::<Column>().map(|column| column.name().to_owned());
        column.unwrap_or_else(|| key.to_string())
    };
    (keys.iter().map(name).collect(), split.partition_count())
}

fn cpu_us(task: &Finished) -> u64 {
    let functions: u64 = task.result.udfs.iter().map(|lane| lane.cpu_us).sum();
    task.result.done.cpu_nanos / 1000 + functions
}

fn peak_memory(task: &Finished) -> u64 {
    let lanes = task.result.udfs.iter().chain([&task.result.worker]);
    let held = lanes.filter_map(|lane| lane.peak_memory);
    held.chain([task.result.done.peak_reserved_bytes]).max().unwrap_or(0)
}

/// The partition of an output with most rows.
fn largest(finished: &[&Finished], partitions: usize) -> Option<LargestPartition> {
    let mut rows: BTreeMap<u32, u64> = BTreeMap::new();
    for (partition, more) in finished.iter().flat_map(|task| &task.output) {
        *rows.entry(*partition).or_default() += more;
    }
    let total: u64 = rows.values().sum();
    let (partition, most) = rows.iter().max_by_key(|(_, rows)| **rows)?;
    let mut sorted: Vec<u64> = rows.values().copied().collect();
    sorted.resize(sorted.len().max(partitions), 0);
    sorted.sort_unstable();
    (total > 0).then(|| LargestPartition {
        partition: *partition,
        of: partitions as u32,
        rows: *most,
        share: *most as f64 / total as f64,
        median_rows: sorted[(sorted.len() - 1) / 2],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::TaskResult;

    fn finished(output: &[(u32, u64)]) -> Finished {
        Finished {
            stage: 0,
            task: 0,
            retries: 0,
            received: 0,
            bytes: 0,
            output: output.to_vec(),
            result: TaskResult::default(),
        }
    }

    #[test]
    fn the_largest_partition_is_summed_over_the_tasks() {
        let tasks = [finished(&[(0, 10), (1, 100)]), finished(&[(1, 80), (3, 10)])];
        let found = largest(&tasks.iter().collect::<Vec<_>>(), 4).unwrap();
        let expected =
            LargestPartition { partition: 1, of: 4, rows: 180, share: 0.9, median_rows: 10 };
        assert_eq!(found, expected);
        // Partitions without rows count for the median.
        let found = largest(&[&tasks[0]], 6).unwrap();
        assert_eq!(found.median_rows, 0);
        assert!(largest(&[&finished(&[])], 4).is_none() && largest(&[], 4).is_none());
    }
}
