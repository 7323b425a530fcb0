//! Whether a part is worth being written for its readers.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use crate::estimate::estimate;

/// The cost of a row that is written, or read again, relative to the cost of a row that an operator
/// reads.
const WRITTEN: f64 = 0.5;

/// True if it costs less to write the rows of a part once and read them for each of `readers` than
/// to make them again each time. A join may give more rows than it reads, and its readers may need
/// few of them: a semi join needs only whether there is one.
pub(crate) fn is_worth(part: &Arc<dyn ExecutionPlan>, readers: usize) -> bool {
    let rows = estimate(part).rows;
    let saved = work(part) * (readers.saturating_sub(1)) as f64;
    rows * WRITTEN * (1 + readers) as f64 <= saved
}

/// Returns the rows that operators read, without operators that do little for each row, such as
/// filters.
fn work(node: &Arc<dyn ExecutionPlan>) -> f64 {
    let children = node.children();
    if children.is_empty() {
        return estimate(node).rows;
    }
    let is_light =
        node.is::<FilterExec>() || node.is::<ProjectionExec>() || node.is::<RepartitionExec>();
    let read = |child: &Arc<dyn ExecutionPlan>| if is_light { 0.0 } else { estimate(child).rows };
    children.into_iter().map(|child| read(child) + work(child)).sum()
}
