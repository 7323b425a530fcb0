//! Whether a part is worth being written for its readers.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::super::estimate::estimate;

/// What a row costs that is written, or read again, in that of a row that an operator reads.
const WRITTEN: f64 = 0.5;

/// True if it costs less to write the rows of a part once, and to read them so often, than to make
/// them again each time. A join may give more rows than it reads, and its readers may need few of them:
/// of a semi join only whether there is one.
pub(super) fn is_worth(part: &Arc<dyn ExecutionPlan>, readers: usize) -> bool {
    let rows = estimate(part).rows;
    let saved = work(part) * (readers.saturating_sub(1)) as f64;
    rows * WRITTEN * (1 + readers) as f64 <= saved
}

/// The rows that operators read: those that look at each row of their input for more than a filter.
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
