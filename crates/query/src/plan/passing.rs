//! Which results may be read before their task is whole.
//!
//! Where the driver only passes rows on, a user should see the first row as soon as it exists. A
//! row cannot be taken back, so this needs a program that gives the same rows in the same order
//! when it runs again: scans, filters and projections do, if no filter is random or calls a user's
//! function.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
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
    // A filter may look at a column that a projection below it computed.
    let chance = node.is::<FilterExec>() && !all(node, &|below| !depends_on_chance(below));
    IN_ORDER.contains(&node.name()) && !chance
}

/// True if an expression of the operator itself may give another value the next time: user's
/// functions count as such.
fn depends_on_chance(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut found = false;
    let visited = node.apply_expressions(&mut |expression| {
        found |= is_volatile(expression);
        Ok(TreeNodeRecursion::Continue)
    });
    found || visited.is_err()
}

fn all(node: &Arc<dyn ExecutionPlan>, wanted: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool) -> bool {
    wanted(node) && node.children().into_iter().all(|child| all(child, wanted))
}
