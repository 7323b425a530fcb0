//! Decides which results may be read before their task is complete.
//!
//! If the driver only passes rows on, the user should see the first row as soon as it exists. A row
//! cannot be retracted, so the program must give the same rows in the same order when it is
//! retried: scans, filters and projections do, unless a filter is random or calls a UDF.

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use snowmelt_execute::exchange::ExchangeReadExec;

use super::cut::Cut;
use crate::operators::is_nondeterministic;
use crate::results::ResultExec;

/// Enables streaming for the results of a query where that is safe.
pub(crate) fn mark(cut: &Cut) {
    if !all(&cut.driver, &passes_on) {
        return;
    }
    for stage in &cut.stages {
        if let Some(queue) = stage.queue()
            && is_repeatable(stage.body(), &is_nondeterministic).is_some()
        {
            queue.enable_streaming();
        }
    }
}

/// True for an operator of the driver that needs no other row to output a row.
fn passes_on(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<ProjectionExec>()
        || node.is::<ResultExec>()
        || node.is::<UnionExec>()
}

/// True for an operator of workers that preserves the order of its input.
fn preserves_order(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<CooperativeExec>()
        || node.is::<DataSourceExec>()
        || node.is::<ExchangeReadExec>()
        || node.is::<FilterExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<ProjectionExec>()
}

/// Checks whether a plan gives the same rows in the same order when it runs again: `None` if not.
/// Otherwise whether one of its operators is nondeterministic: a filter may use a column that a
/// projection below it computed.
fn is_repeatable(
    node: &Arc<dyn ExecutionPlan>,
    is_random: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Option<bool> {
    if !preserves_order(node) {
        return None;
    }
    let mut random = is_random(node);
    for child in node.children() {
        random |= is_repeatable(child, is_random)?;
    }
    (!random || !node.is::<FilterExec>()).then_some(random)
}

fn all(node: &Arc<dyn ExecutionPlan>, test: &dyn Fn(&Arc<dyn ExecutionPlan>) -> bool) -> bool {
    test(node) && node.children().into_iter().all(|child| all(child, test))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use arrow::datatypes::Schema;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_expr::expressions::lit;

    use super::*;

    /// Filters over an empty scan.
    fn filters(depth: usize) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::empty());
        let scan: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&[vec![]], schema, None).unwrap();
        (0..depth).fold(scan, |input, _| Arc::new(FilterExec::try_new(lit(true), input).unwrap()))
    }

    #[test]
    fn each_operator_is_visited_once() {
        let visits = Cell::new(0);
        let visit = |_: &Arc<dyn ExecutionPlan>| {
            visits.set(visits.get() + 1);
            false
        };
        assert_eq!(is_repeatable(&filters(50), &visit), Some(false));
        assert_eq!(visits.get(), 51);
    }

    #[test]
    fn a_filter_over_a_nondeterministic_operator_is_not_repeatable() {
        let scan = |node: &Arc<dyn ExecutionPlan>| !node.is::<FilterExec>();
        assert_eq!(is_repeatable(&filters(0), &scan), Some(true));
        assert_eq!(is_repeatable(&filters(2), &scan), None);
    }
}
