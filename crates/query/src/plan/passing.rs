//! Which results may be read before their task is whole.
//!
//! Where the driver only passes rows on, a user should see the first row as soon as it exists. A
//! row cannot be taken back, so this needs a program that gives the same rows in the same order
//! when it runs again: scans, filters and projections do, if no filter is random or calls a user's
//! function.

use std::sync::Arc;

use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;

use super::cut::Cut;

/// Operators of the driver that need no row but the one that they give.
const PASS_ON: [&str; 6] = [
    "CoalescePartitionsExec",
    "CooperativeExec",
    "GlobalLimitExec",
    "ProjectionExec",
    "ResultExec",
    "UnionExec",
];

/// Operators of workers whose rows come in the order of their input.
const IN_ORDER: [&str; 7] = [
    "CoalesceBatchesExec",
    "CooperativeExec",
    "DataSourceExec",
    "FilterExec",
    "GlobalLimitExec",
    "LocalLimitExec",
    "ProjectionExec",
];

/// Marks the results of a query to be read as they arrive, where that is safe.
pub(super) fn mark(cut: &Cut) {
    if !all(&cut.driver, &|node| PASS_ON.contains(&node.name())) {
        return;
    }
    for fragment in &cut.fragments {
        if all(&fragment.plan, &repeats) {
            fragment.queue.pass_on();
        }
    }
}

fn repeats(node: &Arc<dyn ExecutionPlan>) -> bool {
    let chance =
        node.downcast_ref::<FilterExec>().is_some_and(|filter| is_volatile(filter.predicate()));
    IN_ORDER.contains(&node.name()) && !chance
}

fn all(node: &Arc<dyn ExecutionPlan>, wanted: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool) -> bool {
    wanted(node) && node.children().into_iter().all(|child| all(child, wanted))
}
