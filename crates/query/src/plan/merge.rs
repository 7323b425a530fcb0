//! Replaces hash exchanges by merges.
//!
//! DataFusion redistributes rows by hash for a window with PARTITION BY and no bound at its end,
//! regardless of its settings. There is no exchange between workers yet, but a single partition
//! with all rows also has the rows of each key together: the driver merges, and the query runs.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

/// Replaces each hash exchange of a plan by a merge.
pub(super) fn replace_exchanges(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let merged = plan.transform_up(|node| {
        let exchange = node.downcast_ref::<RepartitionExec>();
        let by_hash = |e: &&RepartitionExec| matches!(e.partitioning(), Partitioning::Hash(..));
        match exchange.filter(by_hash) {
            Some(exchange) => Ok(Transformed::yes(merge(exchange))),
            None => Ok(Transformed::no(node)),
        }
    });
    merged.data()
}

fn merge(exchange: &RepartitionExec) -> Arc<dyn ExecutionPlan> {
    let input = Arc::clone(exchange.input());
    match input.output_ordering().filter(|_| exchange.preserve_order()).cloned() {
        Some(ordering) => Arc::new(SortPreservingMergeExec::new(ordering, input)),
        None => Arc::new(CoalescePartitionsExec::new(input)),
    }
}
