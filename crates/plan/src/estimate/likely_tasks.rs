//! How many tasks the stages of a plan are likely to have, before it is cut into stages.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use snowmelt_execute::tree::file_scan;
use snowmelt_execute::udf;

use super::estimate;
use crate::operators::SharedExec;
use crate::tables::read_bytes;

/// Bytes for which a row of a file counts at least: a column of one value has hardly any bytes.
const ROW_BYTES: f64 = 8.0;

/// Returns the bytes for which the scan of a table counts when its tasks are counted.
pub(crate) fn scan_bytes(leaf: &Arc<dyn ExecutionPlan>, scan: &FileScanConfig) -> u64 {
    let files = scan.file_groups.iter().flat_map(|group| group.files());
    let rows = estimate(leaf).source_rows;
    files.map(read_bytes).sum::<u64>().max((rows * ROW_BYTES) as u64)
}

/// The number of tasks that is assumed at least where there may be several: a stage of one task may
/// get more if its inputs are larger than estimated.
const FEWEST: usize = 2;

/// Returns the likely number of tasks, at most `most`, of the stage of a plan that scans most.
/// `scan_task_bytes` of files are worth a task, and 0 means all tasks. Work that each task repeats,
/// such as collecting the build side of a join, costs as many times. A plan that calls UDFs may
/// have all tasks.
pub(crate) fn likely_tasks(
    plan: &Arc<dyn ExecutionPlan>,
    most: usize,
    scan_task_bytes: u64,
) -> usize {
    let bytes = if scan_task_bytes == 0 { None } else { most_scanned(plan) };
    let worth = bytes.map_or(most, |bytes| bytes.div_ceil(scan_task_bytes) as usize);
    worth.max(FEWEST).min(most).max(1)
}

/// The bytes that one stage scans at most; `None` if they do not say how much its work is: it calls
/// UDFs, or has rows that come from no file.
fn most_scanned(node: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    if !udf::called_by(node).is_ok_and(|called| called.is_empty()) {
        return None;
    }
    if let Some(scan) = file_scan(node) {
        return Some(scan_bytes(node, scan));
    }
    if let Some(shared) = node.downcast_ref::<SharedExec>() {
        return most_scanned(shared.part());
    }
    let children = node.children();
    if children.is_empty() {
        // Values in the SQL are no work.
        let is_of_values = node.is::<EmptyExec>()
            || node.is::<PlaceholderRowExec>()
            || node.is::<DataSourceExec>();
        return is_of_values.then_some(0);
    }
    let scanned = children.into_iter().map(most_scanned);
    let scanned = scanned.collect::<Option<Vec<u64>>>()?.into_iter();
    // The inputs of a union are partitions of one stage.
    match node.is::<UnionExec>() || node.is::<InterleaveExec>() {
        true => Some(scanned.fold(0, u64::saturating_add)),
        false => scanned.max(),
    }
}
