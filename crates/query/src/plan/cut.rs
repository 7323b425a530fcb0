//! Cuts a plan into the part of the workers and the part of the driver (Lambada 3.2).
//!
//! A fragment is the largest subtree over a scan in which partition `i` of the result depends only
//! on partition `i` of each child: it contains no merge of partitions. It is replaced by a
//! [`ResultExec`], a leaf with the same number of partitions. The driver's part is therefore the
//! same plan over the same rows; only the place where the rows are computed differs.
//!
//! A plan with a single partition has no merge: all of it goes to one worker.
//!
//! An operator that the codec would change is not part of a fragment: the driver runs it over a
//! smaller fragment. A scan has no smaller fragment, so it is refused.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use crate::driver::{ResultExec, ResultQueue};
use crate::{Error, Result, codec};

/// A plan in two halves.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// The workers' programs. Most queries have one; a UNION ALL of aggregates has one for each.
    pub(crate) fragments: Vec<Fragment>,
    /// The driver's plan, with a [`ResultExec`] for each fragment.
    pub(crate) driver: Arc<dyn ExecutionPlan>,
}

/// A program and the queue of its results.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// The encoded plan, which is sent to the workers.
    pub(crate) bytes: Bytes,
    pub(crate) queue: Arc<ResultQueue>,
}

/// Operators that compute partition `i` from partition `i` alone, wherever the optimiser puts them.
/// All other operators stay with the driver.
const PARTITION_WISE: [&str; 13] = [
    "AggregateExec",
    "BoundedWindowAggExec",
    "CoalesceBatchesExec",
    "CooperativeExec",
    "DataSourceExec",
    "FilterExec",
    "GlobalLimitExec",
    "LocalLimitExec",
    "ProjectionExec",
    "SortExec",
    "UnionExec",
    "UnnestExec",
    "WindowAggExec",
];

/// Operators that merge partitions, unless there is only one partition.
const MERGES: [&str; 2] = ["CoalescePartitionsExec", "SortPreservingMergeExec"];

/// Cuts a plan that [`refuse`](super::refuse) accepted.
pub(super) fn cut(plan: Arc<dyn ExecutionPlan>, config: &SessionConfig) -> Result<Cut> {
    let mut fragments = Vec::new();
    let driver = replace(plan, config, &mut fragments)?;
    Ok(Cut { fragments, driver })
}

fn replace(
    node: Arc<dyn ExecutionPlan>,
    config: &SessionConfig,
    fragments: &mut Vec<Fragment>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if partition_wise(&node) && reads_files(&node) {
        match codec::encode(&node, config) {
            Ok(bytes) => return Ok(fragment(node, bytes, fragments)),
            Err(why) if file_scan(&node).is_some() => return Err(Error::ScanChanged { why }),
            Err(why) => tracing::debug!(%why, "an operator stays with the driver"),
        }
    }
    if node.children().is_empty() {
        return Ok(node);
    }
    let children: Vec<_> = node.children().into_iter().cloned().collect();
    let replaced = children.into_iter().map(|child| replace(child, config, fragments));
    let replaced = replaced.collect::<Result<Vec<_>>>()?;
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(node.replace_children(replaced, anew)?)
}

fn fragment(
    plan: Arc<dyn ExecutionPlan>,
    bytes: Bytes,
    fragments: &mut Vec<Fragment>,
) -> Arc<dyn ExecutionPlan> {
    let queue = Arc::new(ResultQueue::default());
    let leaf = ResultExec::new(fragments.len(), &plan, Arc::clone(&queue));
    fragments.push(Fragment { plan, bytes, queue });
    Arc::new(leaf)
}

fn partition_wise(node: &Arc<dyn ExecutionPlan>) -> bool {
    let children = node.children();
    let single =
        |child: &&Arc<dyn ExecutionPlan>| child.output_partitioning().partition_count() == 1;
    let known = match node.name() {
        "DataSourceExec" => file_scan(node).is_some(),
        name if MERGES.contains(&name) => children.iter().all(single),
        // The name of a sort includes its mode: `SortExec(TopK)`.
        name => PARTITION_WISE.iter().any(|known| name.split('(').next() == Some(*known)),
    };
    known && children.into_iter().all(partition_wise)
}

fn reads_files(node: &Arc<dyn ExecutionPlan>) -> bool {
    file_scan(node).is_some() || node.children().into_iter().any(reads_files)
}

/// The configuration of a file scan; `None` for other nodes.
pub(crate) fn file_scan(node: &Arc<dyn ExecutionPlan>) -> Option<&FileScanConfig> {
    let source = node.downcast_ref::<DataSourceExec>()?;
    source.data_source().downcast_ref::<FileScanConfig>()
}

/// Calls `visit` with every scan of a fragment's partition and the corresponding partition of the
/// scan.
pub(crate) fn scans_of_partition(
    node: &Arc<dyn ExecutionPlan>,
    partition: usize,
    visit: &mut dyn FnMut(&FileScanConfig, usize),
) {
    if let Some(scan) = file_scan(node) {
        return visit(scan, partition);
    }
    if node.is::<UnionExec>() {
        let mut rest = partition;
        for child in node.children() {
            let partitions = child.output_partitioning().partition_count();
            if rest < partitions {
                return scans_of_partition(child, rest, visit);
            }
            rest -= partitions;
        }
        return;
    }
    for child in node.children() {
        scans_of_partition(child, partition, visit);
    }
}
