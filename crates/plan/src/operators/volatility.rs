//! Finds operators that may give other values the next time.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use snowmelt_execute::udf;

/// True if a part of a plan may give other rows the next time.
pub(crate) fn may_differ(node: &Arc<dyn ExecutionPlan>) -> bool {
    is_nondeterministic(node) || node.children().into_iter().any(may_differ)
}

/// True if an expression of the operator itself may give another value the next time. UDFs count as
/// nondeterministic.
pub(crate) fn is_nondeterministic(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut found = false;
    let visited = node.apply_expressions(&mut |expression| {
        found |= is_volatile(expression);
        Ok(TreeNodeRecursion::Continue)
    });
    // Aggregate functions are not expressions.
    let calls = udf::called_by(node).map_or(true, |called| !called.is_empty());
    found || calls || visited.is_err()
}
