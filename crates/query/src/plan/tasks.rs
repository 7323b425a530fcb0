//! Turns a stage into tasks: for each worker its partitions, files, inputs and UDFs.
//!
//! Invariant: each partition of a stage is in exactly one task, unless several tasks divide its rows.

use std::collections::{BTreeMap, BTreeSet};

use object_store::ObjectMeta;
use snowmelt_wire::{FileGrant, OutputPartition, S3Access, TaskRead};

use super::cut::{Output, Stage};
use super::info::read_bytes;
use super::leaves;
use super::outputs::Outputs;
use super::spread::{Share, spread};
use crate::Result;
use crate::driver::PlannedTask;
use crate::exchange::ExchangeReadExec;
use crate::scan::{S3Settings, file_path};
use crate::udf;

/// How a stage is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    /// The most tasks.
    pub(crate) workers: u32,
    /// Bytes of other stages' outputs that are worth a task.
    pub(crate) task_bytes: u64,
}

/// The tasks of a stage, numbered from `first`. Without the outputs that it reads, they are the
/// most tasks that it can have, and read nothing.
pub(crate) fn tasks(
    stage: &Stage,
    outputs: &Outputs,
    division: Division,
    first: u32,
    s3: &S3Settings,
) -> Result<Vec<PlannedTask>> {
    let udfs: Vec<String> = udf::names_in(&stage.plan)?.into_iter().collect();
    let partitions = leaves::count(stage.body()) as u32;
    let most = most_tasks(stage, outputs, division, !udfs.is_empty());
    let shares = spread(stage, outputs, most, division.task_bytes);
    let shares = shares.unwrap_or_else(|| shares_of(partitions, most).collect());
    let task = |(index, Share { partitions, only }): (usize, Share)| PlannedTask {
        task: first + index as u32,
        plan: stage.bytes.clone(),
        udfs: udfs.clone(),
        output: matches!(stage.output, Output::Exchange),
        reads: reads(stage, outputs, &partitions, only.as_ref()),
        only,
        ..grants_for(stage, partitions, s3)
    };
    Ok(shares.into_iter().enumerate().map(task).collect())
}

/// A stage that only reads other stages has as many tasks as their bytes are worth. One that scans
/// or calls UDFs has all that it can have.
fn most_tasks(stage: &Stage, outputs: &Outputs, division: Division, calls: bool) -> u32 {
    let most = division.workers.max(1);
    let (mut scans, mut bytes) = (false, 0);
    let all: Vec<u32> = (0..leaves::count(stage.body()) as u32).collect();
    leaves::visit(stage.body(), &all, &mut |leaf, _| {
        scans |= leaves::file_scan(leaf).is_some_and(|scan| scan.file_groups.len() > 1);
        let read = leaf.downcast_ref::<ExchangeReadExec>().map(ExchangeReadExec::stage);
        let written = read.and_then(|stage| outputs.get(&stage)).into_iter().flatten();
        let parts = written.flat_map(|output| output.partitions.iter());
        bytes += parts.map(OutputPartition::bytes).sum::<u64>();
    });
    match scans || calls || outputs.is_empty() {
        true => most,
        false => bytes.div_ceil(division.task_bytes.max(1)).clamp(1, most.into()) as u32,
    }
}

/// Worker `id` of `workers` runs the partitions `i` with `i % workers == id`. A worker without
/// partitions is omitted.
fn shares_of(partitions: u32, workers: u32) -> impl Iterator<Item = Share> {
    let workers = workers.max(1);
    let share = move |id| Share {
        partitions: (id..partitions).step_by(workers as usize).collect(),
        only: None,
    };
    (0..workers.min(partitions)).map(share)
}

/// What some partitions of a stage read of the outputs of other tasks: of one stage perhaps only
/// those of some tasks.
pub(crate) fn reads(
    stage: &Stage,
    outputs: &Outputs,
    partitions: &[u32],
    only: Option<&(u32, BTreeSet<u32>)>,
) -> Vec<TaskRead> {
    let mut wanted: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    leaves::visit(stage.body(), partitions, &mut |leaf, partitions| {
        if let Some(read) = leaf.downcast_ref::<ExchangeReadExec>() {
            wanted.entry(read.stage()).or_default().extend_from_slice(partitions);
        }
    });
    let mut reads = Vec::new();
    for (stage, mut partitions) in wanted {
        partitions.sort_unstable();
        partitions.dedup();
        let only = only.filter(|(of, _)| *of == stage).map(|(_, tasks)| tasks);
        let written = outputs.get(&stage).into_iter().flatten();
        for output in written.filter(|it| only.is_none_or(|tasks| tasks.contains(&it.task))) {
            let is_wanted = |it: &&OutputPartition| partitions.binary_search(&it.partition).is_ok();
            let found: Vec<_> = output.partitions.iter().filter(is_wanted).cloned().collect();
            if !found.is_empty() {
                reads.push(TaskRead { stage, task: output.task, partitions: found });
            }
        }
    }
    reads
}

/// The files and buckets that a worker needs to run these partitions.
fn grants_for(stage: &Stage, partitions: Vec<u32>, s3: &S3Settings) -> PlannedTask {
    let mut files = BTreeMap::new();
    let mut buckets: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut bytes = 0;
    leaves::visit_scans(stage.body(), &partitions, &mut |scan, groups| {
        let bucket = scan.object_store_url.as_str().strip_prefix("s3://");
        let groups = groups.iter().filter_map(|group| scan.file_groups.get(*group as usize));
        for part in groups.flat_map(|group| group.files()) {
            bytes += read_bytes(part);
            let meta = &part.object_meta;
            match bucket {
                Some(bucket) => {
                    let bucket = bucket.trim_end_matches('/').to_owned();
                    let tag = meta.e_tag.clone().map(|tag| (meta.location.to_string(), tag));
                    buckets.entry(bucket).or_default().extend(tag);
                }
                None => _ = files.insert(meta.location.clone(), meta.clone()),
            }
        }
    });
    let grant = |(path, meta): (_, ObjectMeta)| FileGrant {
        path: file_path(&path).display().to_string(),
        bytes: meta.size,
        version: meta.version.unwrap_or_default(),
    };
    let access =
        |(bucket, versions)| (bucket, S3Access { settings: s3.settings().clone(), versions });
    PlannedTask {
        partitions,
        files: files.into_iter().map(grant).collect(),
        s3: buckets.into_iter().map(access).collect(),
        bytes,
        ..PlannedTask::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_partition_is_in_exactly_one_share(partitions in 0u32..500, workers in 0u32..100) {
            let shares: Vec<Vec<u32>> =
                shares_of(partitions, workers).map(|share| share.partitions).collect();
            prop_assert!(shares.iter().all(|share| !share.is_empty()));
            prop_assert!(shares.len() <= workers.max(1) as usize);
            let mut all = shares.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..partitions).collect::<Vec<_>>());
        }

        #[test]
        fn shares_differ_by_at_most_one(partitions in 1u32..500, workers in 1u32..100) {
            let sizes: Vec<usize> =
                shares_of(partitions, workers).map(|share| share.partitions.len()).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(most - least <= 1);
        }
    }
}
