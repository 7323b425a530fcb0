//! Turns fragments into tasks: the plan's bytes, and for each worker its partitions, files and
//! UDFs.
//!
//! Invariant: each partition of each fragment is in exactly one task.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use object_store::ObjectMeta;
use snowmelt_wire::{FileGrant, S3Access};

use super::cut::{self, Cut, Fragment};
use super::table::ReadBytes;
use crate::Result;
use crate::driver::PlannedTask;
use crate::scan::{S3Settings, file_path};
use crate::udf;

/// A task and the fragment that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct FragmentTask {
    pub(crate) fragment: usize,
    pub(crate) planned: PlannedTask,
}

/// All tasks of a query, fragment by fragment.
pub(super) fn tasks(cut: &Cut, workers: u32, s3: &S3Settings) -> Result<Vec<FragmentTask>> {
    let mut tasks = Vec::new();
    for (fragment, Fragment { plan, bytes, .. }) in cut.fragments.iter().enumerate() {
        let udfs: Vec<String> = udf::names_in(plan)?.into_iter().collect();
        let partitions = plan.output_partitioning().partition_count() as u32;
        for partitions in shares(partitions, workers) {
            let mut task = PlannedTask {
                task: tasks.len() as u32,
                plan: bytes.clone(),
                udfs: udfs.clone(),
                ..grants_for(plan, &partitions, s3)
            };
            task.partitions = partitions;
            tasks.push(FragmentTask { fragment, planned: task });
        }
    }
    Ok(tasks)
}

/// Worker `id` of `workers` runs the partitions `i` with `i % workers == id`. A worker without
/// partitions is omitted.
fn shares(partitions: u32, workers: u32) -> impl Iterator<Item = Vec<u32>> {
    let workers = workers.max(1);
    let share = move |id| (id..partitions).step_by(workers as usize).collect();
    (0..workers.min(partitions)).map(share)
}

/// The files and buckets that a worker needs to run these partitions.
fn grants_for(plan: &Arc<dyn ExecutionPlan>, partitions: &[u32], s3: &S3Settings) -> PlannedTask {
    let mut files = BTreeMap::new();
    let mut buckets: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut bytes = 0;
    for partition in partitions {
        cut::scans_of_partition(plan, *partition as usize, &mut |scan, group| {
            let Some(group) = scan.file_groups.get(group) else { return };
            let bucket = scan.object_store_url.as_str().strip_prefix("s3://");
            for part in group.files() {
                bytes += part.extension::<ReadBytes>().map_or(part.object_meta.size, |read| read.0);
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
    }
    let grant = |(path, meta): (_, ObjectMeta)| FileGrant {
        path: file_path(&path).display().to_string(),
        bytes: meta.size,
        version: meta.version.unwrap_or_default(),
    };
    let access =
        |(bucket, versions)| (bucket, S3Access { settings: s3.settings().clone(), versions });
    PlannedTask {
        task: 0,
        partitions: Vec::new(),
        plan: bytes::Bytes::new(),
        files: files.into_iter().map(grant).collect(),
        udfs: Vec::new(),
        s3: buckets.into_iter().map(access).collect(),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_partition_is_in_exactly_one_share(partitions in 0u32..500, workers in 0u32..100) {
            let shares: Vec<Vec<u32>> = shares(partitions, workers).collect();
            prop_assert!(shares.iter().all(|share| !share.is_empty()));
            prop_assert!(shares.len() <= workers.max(1) as usize);
            let mut all = shares.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..partitions).collect::<Vec<_>>());
        }

        #[test]
        fn shares_differ_by_at_most_one(partitions in 1u32..500, workers in 1u32..100) {
            let sizes: Vec<usize> = shares(partitions, workers).map(|share| share.len()).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(most - least <= 1);
        }
    }
}
