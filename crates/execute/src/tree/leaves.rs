//! Finds the leaves of a plan that one of its partitions reads.
//!
//! Partition `i` of most operators depends on partition `i` of each input. An input with another
//! number of partitions is read whole: the build side of a join, the input of a merge. So is the
//! input of a repartitioning, whose partitions depend on all of its input.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// The number of partitions of an operator.
pub fn count(node: &Arc<dyn ExecutionPlan>) -> usize {
    node.output_partitioning().partition_count()
}

/// The configuration of a file scan; `None` for other nodes.
pub fn file_scan(node: &Arc<dyn ExecutionPlan>) -> Option<&FileScanConfig> {
    let source = node.downcast_ref::<DataSourceExec>()?;
    source.data_source().downcast_ref::<FileScanConfig>()
}

/// True if partition `i` of an operator depends on partition `i` of this input only.
pub fn is_partition_wise(node: &Arc<dyn ExecutionPlan>, input: &Arc<dyn ExecutionPlan>) -> bool {
    !node.is::<RepartitionExec>() && count(node) == count(input)
}

/// Returns, for each child of a union, its partitions that some partitions of the union stand for.
pub fn of_union(node: &Arc<dyn ExecutionPlan>, partitions: &[u32]) -> Vec<Vec<u32>> {
    let mut start = 0;
    let of_child = |child: &Arc<dyn ExecutionPlan>| {
        let range = start..start + count(child) as u32;
        start = range.end;
        let inside = partitions.iter().filter(|partition| range.contains(partition));
        inside.map(|partition| partition - range.start).collect()
    };
    node.children().into_iter().map(of_child).collect()
}

/// A callback for a leaf and the partitions of it that are read.
type OnLeaf<'f> = dyn FnMut(&Arc<dyn ExecutionPlan>, &[u32]) + 'f;

/// Calls `found` with each leaf that some partitions of a plan read, and the leaf's partitions.
pub fn visit(node: &Arc<dyn ExecutionPlan>, partitions: &[u32], found: &mut OnLeaf<'_>) {
    let children = node.children();
    if children.is_empty() {
        return found(node, partitions);
    }
    if node.is::<UnionExec>() {
        for (child, own) in children.into_iter().zip(of_union(node, partitions)) {
            if !own.is_empty() {
                visit(child, &own, found);
            }
        }
        return;
    }
    for child in children {
        match is_partition_wise(node, child) {
            true => visit(child, partitions, found),
            false => {
                let all: Vec<u32> = (0..count(child) as u32).collect();
                visit(child, &all, found);
            }
        }
    }
}

/// Calls `found` with every file scan that some partitions of a plan read, and its file groups.
pub fn visit_scans(
    node: &Arc<dyn ExecutionPlan>,
    partitions: &[u32],
    found: &mut dyn FnMut(&FileScanConfig, &[u32]),
) {
    visit(node, partitions, &mut |leaf, partitions| {
        if let Some(scan) = file_scan(leaf) {
            found(scan, partitions);
        }
    });
}
