//! Inputs that a task reads itself rather than from another task.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use super::info::read_bytes;
use super::leaves::file_scan;

/// The size of the columns of a small table, as stored. A stage of its own costs about as much as
/// reading this much.
const SMALL_BYTES: u64 = 256 << 10;

/// The files of a small table: each is opened by every task.
const SMALL_FILES: usize = 2;

/// True for a scan of a small table, filtered and projected at most, and for values in the SQL.
pub(super) fn is_small(node: &Arc<dyn ExecutionPlan>) -> bool {
    let children = node.children();
    if children.is_empty() {
        let Some(scan) = file_scan(node) else { return true };
        let files: Vec<_> = scan.file_groups.iter().flat_map(|group| group.files()).collect();
        let bytes = files.iter().map(|file| read_bytes(file));
        return files.len() <= SMALL_FILES && bytes.sum::<u64>() <= SMALL_BYTES;
    }
    // A UDF is called once for each row, not once for each row and task.
    let cheap =
        node.is::<FilterExec>() || node.is::<ProjectionExec>() || node.is::<CooperativeExec>();
    let calls = crate::udf::called_by(node).map_or(true, |called| !called.is_empty());
    cheap && !calls && children.into_iter().all(is_small)
}
