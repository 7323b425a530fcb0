//! Turns a stage into tasks: for each worker its partitions, files, inputs and UDFs.
//!
//! Invariant: each partition of a stage is in exactly one task, unless several tasks divide its rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use datafusion::datasource::physical_plan::FileScanConfig;
use object_store::ObjectMeta;
use snowmelt_execute::exchange::{Exchange, ExchangeReadExec, StageMedium};
use snowmelt_execute::operators::may_spill;
use snowmelt_execute::scan::paths::file_path;
use snowmelt_execute::scan::{S3Settings, is_http};
use snowmelt_execute::{tree, udf};
use snowmelt_wire::{FileGrant, ObjectOutput, ObjectsAt, OutputPartition, S3Access, TaskRead};

use super::division::{Division, most_tasks};
use super::outputs::{Outputs, TaskOutput};
use super::ranges::Ranges;
use super::sent_footers::{Allowance, SentFooters};
use super::spread::{TaskPartitions, spread};
use super::stage_reads::{is_known, partitions_read, read_whole};
use super::task::PlannedTask;
use crate::Result;
use crate::stages::Stage;
use crate::tables::read_bytes;

/// Makes the tasks of a stage, numbered from `first`. Without the outputs that the stage reads,
/// they are the most tasks that it can have, and read nothing.
pub fn tasks(
    stage: &Stage,
    outputs: &Outputs,
    division: Division,
    first: u32,
    s3: &S3Settings,
) -> Result<Vec<PlannedTask>> {
    let udfs: Vec<String> = udf::names_in(&stage.plan)?.into_iter().collect();
    let partitions = tree::count(stage.body()) as u32;
    let most = most_tasks(stage, outputs, division, !udfs.is_empty());
    let ranges = ranges(stage, outputs);
    let shares = match &ranges {
        Some(_) => contiguous(partitions, most).map(TaskPartitions::of).collect(),
        None if !is_known(stage, outputs) => shares_of(partitions, most).collect(),
        None => spread(stage, outputs, most, division.task_bytes)
            .unwrap_or_else(|| shares_of(partitions, most).collect()),
    };
    // A stream becomes one if it is not possible when the stage begins.
    let medium = stage.exchange().map(|exchange| &exchange.medium);
    let output = matches!(medium, Some(StageMedium::Files | StageMedium::Streams));
    let scratch = may_spill(&stage.plan);
    let task = |(index, TaskPartitions { partitions, only }): (usize, TaskPartitions)| {
        let reads = match &ranges {
            Some((read, ranges)) => ranges.reads(*read, whole(&partitions)),
            None => reads(stage, outputs, &partitions, only.as_ref()),
        };
        let objects = stage.exchange().and_then(object_output);
        let mut task = grants_for(stage, partitions, s3);
        let written = objects.iter().map(|output| &output.at);
        for at in reads.iter().filter_map(|read| read.objects.as_ref()).chain(written) {
            grant_buckets(at, s3, &mut task.s3);
        }
        PlannedTask {
            task: first + index as u32,
            plan: stage.bytes.clone(),
            udfs: udfs.clone(),
            output,
            objects,
            scratch,
            reads,
            only,
            ..task
        }
    };
    Ok(shares.into_iter().enumerate().map(task).collect())
}

fn object_output(exchange: &Exchange) -> Option<ObjectOutput> {
    let at = exchange.objects()?.clone();
    Some(ObjectOutput { at, unit: exchange.level.unit })
}

/// Adds access to the buckets of an exchange.
fn grant_buckets(at: &ObjectsAt, s3: &S3Settings, granted: &mut BTreeMap<String, S3Access>) {
    for bucket in at.buckets() {
        if !granted.contains_key(bucket) {
            granted.insert(bucket.to_owned(), s3.access(bucket));
        }
    }
}

/// Worker `id` of `workers` runs the partitions `i` with `i % workers == id`. A worker without
/// partitions is omitted.
fn shares_of(partitions: u32, workers: u32) -> impl Iterator<Item = TaskPartitions> {
    let workers = workers.max(1);
    let share = move |id| TaskPartitions {
        partitions: (id..partitions).step_by(workers as usize).collect(),
        only: None,
    };
    (0..workers.min(partitions)).map(share)
}

/// Divides partitions among `workers` workers, so that the partitions of each are next to each
/// other.
pub(crate) fn contiguous(partitions: u32, workers: u32) -> impl Iterator<Item = Range<u32>> {
    let shares = workers.clamp(1, partitions.max(1));
    let begin =
        move |share: u32| (u64::from(partitions) * u64::from(share) / u64::from(shares)) as u32;
    (0..shares).map(move |share| begin(share)..begin(share + 1))
}

impl TaskPartitions {
    fn of(partitions: Range<u32>) -> Self {
        Self { partitions: partitions.collect(), only: None }
    }
}

/// The range of partitions that are next to each other.
fn whole(partitions: &[u32]) -> Range<u32> {
    let first = partitions.first().copied().unwrap_or_default();
    first..partitions.last().map_or(first, |last| last + 1)
}

/// The stage whose sorted output a stage reads in ranges of keys.
pub fn reads_by_range(stage: &Stage) -> Option<u32> {
    let read = stage.body().downcast_ref::<ExchangeReadExec>()?;
    read.is_by_range().then(|| read.stage())
}

/// The ranges of the sorted output that a stage reads.
fn ranges<'o>(stage: &Stage, outputs: &'o Outputs) -> Option<(u32, Ranges<'o>)> {
    let read = reads_by_range(stage)?;
    let written = outputs.get(&read).map_or(&[][..], Vec::as_slice);
    Some((read, Ranges::of(written, tree::count(stage.body()) as u32)))
}

/// Returns the parts that some partitions of a stage read of the outputs of other tasks. With
/// `only`, of one stage only the outputs of some tasks.
pub fn reads(
    stage: &Stage,
    outputs: &Outputs,
    partitions: &[u32],
    only: Option<&(u32, BTreeSet<u32>)>,
) -> Vec<TaskRead> {
    if let Some((read, ranges)) = ranges(stage, outputs) {
        return ranges.reads(read, whole(partitions));
    }
    let mut reads = Vec::new();
    let whole = read_whole(stage);
    for (stage, partitions) in partitions_read(stage, partitions) {
        let only = only.filter(|(of, _)| *of == stage).map(|(_, tasks)| tasks);
        let written = outputs.get(&stage).into_iter().flatten();
        for output in
            written.filter(|written| only.is_none_or(|tasks| tasks.contains(&written.task)))
        {
            let is_wanted = |it: &&OutputPartition| partitions.binary_search(&it.partition).is_ok();
            // Their marks are for the driver.
            let unmarked = |it: &OutputPartition| OutputPartition {
                partition: it.partition,
                rows: it.rows,
                ranges: it.ranges.clone(),
                objects: it.objects.clone(),
                marks: Vec::new(),
            };
            let found: Vec<_> = output.partitions.iter().filter(is_wanted).map(unmarked).collect();
            if !found.is_empty() {
                let TaskOutput { task, attempt, .. } = *output;
                let objects = output.objects.clone();
                let shared = whole.contains(&stage);
                let partitions = found;
                let range = None;
                reads.push(TaskRead { stage, task, attempt, partitions, objects, shared, range });
            }
        }
    }
    reads
}

/// The bucket of a scan, or its server of HTTP: `https://host`.
fn bucket_of(scan: &FileScanConfig) -> Option<&str> {
    let url = scan.object_store_url.as_str();
    let place = if is_http(url) { url } else { url.strip_prefix("s3://")? };
    Some(place.trim_end_matches('/'))
}

/// The version of a file of a bucket. A server of HTTP may have no entity tags.
fn version_of(bucket: &str, meta: &ObjectMeta) -> Option<String> {
    let other = meta.version.as_ref().filter(|_| is_http(bucket));
    meta.e_tag.as_ref().or(other).cloned()
}

/// The files and buckets that a worker needs to run these partitions.
fn grants_for(stage: &Stage, partitions: Vec<u32>, s3: &S3Settings) -> PlannedTask {
    let mut files = BTreeMap::new();
    let mut buckets: BTreeMap<String, (BTreeMap<String, String>, SentFooters)> = BTreeMap::new();
    let mut bytes = 0;
    // The plan is decoded with the stores of all of its scans, also of those without a file here.
    let all: Vec<u32> = (0..tree::count(stage.body()) as u32).collect();
    tree::visit_scans(stage.body(), &all, &mut |scan, _| {
        if let Some(bucket) = bucket_of(scan) {
            buckets.entry(bucket.to_owned()).or_default();
        }
    });
    tree::visit_scans(stage.body(), &partitions, &mut |scan, groups| {
        let bucket = bucket_of(scan);
        let groups = groups.iter().filter_map(|group| scan.file_groups.get(*group as usize));
        for part in groups.flat_map(|group| group.files()) {
            bytes += read_bytes(part);
            let meta = &part.object_meta;
            match bucket {
                Some(bucket) => {
                    let tag = version_of(bucket, meta);
                    let tag = tag.map(|tag| (meta.location.to_string(), tag));
                    let (versions, footers) = buckets.entry(bucket.to_owned()).or_default();
                    versions.extend(tag);
                    footers.add(part);
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
    let mut left = Allowance::default();
    let access = |(bucket, (versions, footers)): (String, (_, SentFooters))| {
        let footers = footers.encode(&mut left);
        let access = S3Access { versions, footers, ..s3.access(&bucket) };
        (bucket, access)
    };
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
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::joins::CrossJoinExec;
    use datafusion::physical_plan::{ExecutionPlan, Partitioning};
    use proptest::prelude::*;
    use snowmelt_execute::exchange::Facts;

    use super::*;
    use crate::results::ResultQueue;
    use crate::stages::StageOutput;

    /// A stage that joins all rows of stage 0, in three partitions, with those of stage 1.
    fn joining(partitions: usize) -> Stage {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        let read = |stage, partitions| -> Arc<dyn ExecutionPlan> {
            let partitioning = Partitioning::UnknownPartitioning(partitions);
            let schema = Arc::clone(&schema);
            let read = ExchangeReadExec::new(stage, schema, partitioning, Facts::default());
            Arc::new(read.unwrap())
        };
        let build = Arc::new(CoalescePartitionsExec::new(read(0, 3)));
        let plan = Arc::new(CrossJoinExec::new(build, read(1, partitions)));
        let output = StageOutput::Results(Arc::new(ResultQueue::default()));
        Stage { plan, bytes: bytes::Bytes::new(), reads: vec![0, 1], output }
    }

    #[test]
    fn what_each_task_reads_whole_is_shared_and_nothing_else() {
        let part = |partition| OutputPartition {
            partition,
            rows: 1,
            ranges: vec![(0, 1)],
            ..OutputPartition::default()
        };
        let output = |task, partitions: u32| TaskOutput {
            task,
            attempt: 0,
            partitions: Arc::new((0..partitions).map(part).collect()),
            objects: None,
        };
        let outputs = Outputs::from([(0, vec![output(0, 3)]), (1, vec![output(1, 4)])]);
        let read = |stage: &Stage| {
            let read = reads(stage, &outputs, &[0], None);
            read.iter()
                .map(|part| (part.stage, part.partitions.len(), part.shared))
                .collect::<Vec<_>>()
        };
        assert_eq!(read(&joining(4)), [(0, 3, true), (1, 1, false)]);
        // One task reads all.
        assert_eq!(read(&joining(1)), [(0, 3, false), (1, 1, false)]);
    }

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
        fn ranges_of_partitions_are_complete_and_even(partitions in 1u32..500, workers in 0u32..100) {
            let shares: Vec<Range<u32>> = contiguous(partitions, workers).collect();
            prop_assert!(shares.len() <= workers.max(1) as usize);
            let all: Vec<u32> = shares.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..partitions).collect::<Vec<_>>());
            let sizes = || shares.iter().map(Range::len);
            prop_assert!(sizes().min() >= Some(1) && sizes().max() <= sizes().min().map(|n| n + 1));
        }

        #[test]
        fn shares_differ_by_at_most_one(partitions in 1u32..500, workers in 1u32..100) {
            let sizes: Vec<usize> =
                shares_of(partitions, workers).map(|share| share.partitions.len()).collect();
            let least = sizes.iter().min().unwrap();
            let most = sizes.iter().max().unwrap();
            prop_assert!(most - least <= 1);
        }
    }
}
