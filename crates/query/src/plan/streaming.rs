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
        if repeats(&fragment.plan, &depends_on_chance).is_some() {
            fragment.queue.enable_streaming();
        }
    }
}

/// `None` if the rows of a plan may be others, or come in another order, when it runs again.
/// Otherwise whether an operator of it depends on chance: a filter may look at a column that a
/// projection far below it computed.
fn repeats(
    node: &Arc<dyn ExecutionPlan>,
    by_chance: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Option<bool> {
    if !IN_ORDER.contains(&node.name()) {
        return None;
    }
    let mut chance = by_chance(node);
    for child in node.children() {
        chance |= repeats(child, by_chance)?;
    }
    (!chance || !node.is::<FilterExec>()).then_some(chance)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use arrow::datatypes::Schema;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_expr::expressions::lit;

    use super::*;

    /// Filters over a scan of nothing.
    fn filters(depth: usize) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::empty());
        let scan: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&[vec![]], schema, None).unwrap();
        (0..depth).fold(scan, |below, _| Arc::new(FilterExec::try_new(lit(true), below).unwrap()))
    }

    #[test]
    fn each_operator_is_looked_at_once() {
        let looks = Cell::new(0);
        let look = |_: &Arc<dyn ExecutionPlan>| {
            looks.set(looks.get() + 1);
            false
        };
        assert_eq!(repeats(&filters(50), &look), Some(false));
        assert_eq!(looks.get(), 51);
    }

    #[test]
    fn a_filter_over_chance_does_not_repeat() {
        let scan = |node: &Arc<dyn ExecutionPlan>| !node.is::<FilterExec>();
        assert_eq!(repeats(&filters(0), &scan), Some(true));
        assert_eq!(repeats(&filters(2), &scan), None);
    }
}
