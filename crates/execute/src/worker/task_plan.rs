//! Restricts a stage's plan to the partitions of one task.
//!
//! A task runs its partitions as one: partitions by keys, and files without an order, are read one
//! after another as if they were one partition. So one thread computes a task without dividing its
//! rows again, and a join builds one table.

use std::sync::Arc;

use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;

use crate::Result;
use crate::exchange::ExchangeReadExec;
use crate::tree::{count, file_scan, is_partition_wise, of_union, with_children};

/// Restricts a plan to `partitions`, usually as one partition, which has the rows of all of them.
pub(super) fn narrow(
    node: &Arc<dyn ExecutionPlan>,
    partitions: &[u32],
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(read) = node.downcast_ref::<ExchangeReadExec>() {
        return Ok(Arc::new(read.merged(partitions)?));
    }
    if let Some(scan) = file_scan(node) {
        return Ok(files(scan, partitions));
    }
    if node.is::<UnionExec>() {
        return union(node, partitions);
    }
    let narrowed = node.children().into_iter().map(|child| match is_partition_wise(node, child) {
        true => narrow(child, partitions),
        // Read whole.
        false => Ok(Arc::clone(child)),
    });
    Ok(with_children(node, narrowed.collect::<Result<_>>()?)?)
}

/// A scan of the files of some partitions.
fn files(scan: &FileScanConfig, partitions: &[u32]) -> Arc<dyn ExecutionPlan> {
    let mut scan = scan.clone();
    let groups =
        partitions.iter().filter_map(|partition| scan.file_groups.get(*partition as usize));
    scan.file_groups = match scan.output_ordering.is_empty() {
        true => {
            let files = groups.flat_map(|group| group.files().iter().cloned()).collect();
            vec![FileGroup::new(files)]
        }
        false => groups.cloned().collect(),
    };
    scan.output_partitioning = None;
    DataSourceExec::from_data_source(scan)
}

fn union(node: &Arc<dyn ExecutionPlan>, partitions: &[u32]) -> Result<Arc<dyn ExecutionPlan>> {
    let mut inputs = Vec::new();
    for (child, own) in node.children().into_iter().zip(of_union(node, partitions)) {
        if !own.is_empty() {
            inputs.push(narrow(child, &own)?);
        }
    }
    Ok(match (inputs.len(), inputs.pop()) {
        (_, None) => Arc::new(EmptyExec::new(node.schema())),
        // Without the union the fields would have the names of the input.
        (1, Some(one)) if one.schema() == node.schema() => one,
        (_, Some(last)) => {
            inputs.push(last);
            if inputs.len() == 1 {
                inputs.push(Arc::new(EmptyExec::new(inputs[0].schema())));
            }
            UnionExec::try_new(inputs)?
        }
    })
}

/// The numbers under which the partitions of a narrowed plan are posted: as many of the task's own.
pub(super) fn numbers(narrowed: &Arc<dyn ExecutionPlan>, partitions: &[u32]) -> Vec<u32> {
    let last = partitions.last().copied().unwrap_or_default();
    (0..count(narrowed))
        .map(|partition| partitions.get(partition).copied().unwrap_or(last))
        .collect()
}
