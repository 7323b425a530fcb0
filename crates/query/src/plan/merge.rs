//! Merges instead of exchanges.
//!
//! DataFusion redistributes rows by hash where a window has PARTITION BY and no bound at its end,
//! whatever its settings say. There is no exchange between workers yet, but one partition with all
//! rows has the rows of each key together too: the driver merges, and the query runs.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

/// The plan with a merge in the place of each exchange by hash.
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
