//! The plans that are sent to the tasks of a stage with many files.
//!
//! A plan lists all files of its stage. A thousand tasks that are each sent a thousand files take
//! time and memory for a million. So tasks get the plan in groups, each without the files of other
//! groups. A group of files that is not sent stays as an empty one, so partitions keep their numbers.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::datasource::physical_plan::FileGroup;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;
use snowmelt_execute::codec;
use snowmelt_execute::tree::{file_scan, is_partition_wise, of_union, visit_scans, with_children};

use super::task::PlannedTask;
use crate::stages::Stage;

/// The number of tasks that are sent the same plan.
const TASKS: usize = 64;

/// The number of groups of files from which on tasks are sent different plans.
const FEWEST_GROUPS: usize = 128;

/// Replaces the plan of each task of a stage by one without the files of other groups of tasks.
pub fn leave_out_files(stage: &Stage, tasks: &mut [PlannedTask]) {
    let mut groups_of_files = 0;
    let all: Vec<u32> = tasks.iter().flat_map(|task| &task.partitions).copied().collect();
    visit_scans(stage.body(), &all, &mut |scan, _| groups_of_files += scan.file_groups.len());
    if tasks.len() <= TASKS || groups_of_files < FEWEST_GROUPS {
        return;
    }
    for group in tasks.chunks_mut(TASKS) {
        let read = group.iter().flat_map(|task| &task.partitions);
        let partitions: BTreeSet<u32> = read.copied().collect();
        let plan = of_partitions(stage, &partitions.into_iter().collect::<Vec<_>>());
        // The whole plan does as well.
        let Some(bytes) = plan.ok().and_then(|plan| codec::encode_part(&plan)) else { continue };
        group.iter_mut().for_each(|task| task.plan = bytes.clone());
    }
}

/// The plan of a stage with only the files of some partitions of its body.
fn of_partitions(stage: &Stage, partitions: &[u32]) -> Result<Arc<dyn ExecutionPlan>> {
    let body = keep(stage.body(), partitions)?;
    match Arc::ptr_eq(stage.body(), &stage.plan) {
        true => Ok(body),
        false => with_children(&stage.plan, vec![body]),
    }
}

fn keep(node: &Arc<dyn ExecutionPlan>, partitions: &[u32]) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = file_scan(node) {
        let mut scan = scan.clone();
        for (index, group) in scan.file_groups.iter_mut().enumerate() {
            if partitions.binary_search(&(index as u32)).is_err() {
                *group = FileGroup::new(Vec::new());
            }
        }
        return Ok(DataSourceExec::from_data_source(scan));
    }
    let children = node.children();
    let kept: Result<Vec<_>> = match node.is::<UnionExec>() {
        true => {
            let own = of_union(node, partitions);
            children.into_iter().zip(own).map(|(child, own)| keep(child, &own)).collect()
        }
        false => {
            let own = children.into_iter().map(|child| match is_partition_wise(node, child) {
                true => keep(child, partitions),
                // Each task reads all of it.
                false => Ok(Arc::clone(child)),
            });
            own.collect()
        }
    };
    with_children(node, kept?)
}
