//! Partial aggregation: of rows whose groups are next to each other (`group_runs`), by several
//! grouping sets (`grouping_sets`), and of the others by DataFusion (`by_hash`). The first two
//! evaluate their functions alike (`function_input`).

mod by_hash;
mod function_input;
mod group_runs;
mod grouping_sets;

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

/// A faster partial aggregation in place of this one; `None` for other nodes.
pub(super) fn faster(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    group_runs::clustered(node).or_else(|| grouping_sets::derived(node))
}
