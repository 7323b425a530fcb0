//! Inputs that a task reads itself rather than from another task.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use snowmelt_execute::tree::file_scan;

use super::estimate;
use crate::operators::{SharedExec, is_nondeterministic};
use crate::tables::read_bytes;

/// The size of the columns of small tables, as stored. A stage of its own costs about as much as
/// reading this much.
const SMALL_BYTES: u64 = 256 << 10;

/// The files of small tables: each is opened by every task.
const SMALL_FILES: usize = 10;

/// The files of small tables on S3, where each file is a request of every task.
const SMALL_OBJECTS: usize = 2;

/// The rows that joins of small tables give, as estimated.
const SMALL_ROWS: f64 = 32_768.0;

/// The bytes, local files and objects that a task would have to read.
#[derive(Default)]
struct ReadTotals {
    bytes: u64,
    files: usize,
    objects: usize,
}

/// True for small tables that are filtered, projected and joined at most, and for values in the SQL.
pub(crate) fn is_small(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut read = ReadTotals::default();
    is_cheap(node, &mut read)
        && read.bytes <= SMALL_BYTES
        && read.files <= SMALL_FILES
        && read.objects <= SMALL_OBJECTS
}

/// True for operators that cost little for each row, over tables whose size is added to `read`.
fn is_cheap(node: &Arc<dyn ExecutionPlan>, read: &mut ReadTotals) -> bool {
    let children = node.children();
    if children.is_empty() {
        let Some(scan) = file_scan(node) else { return !node.is::<SharedExec>() };
        let files = || scan.file_groups.iter().flat_map(|group| group.files());
        let mut paths: Vec<_> = files().map(|file| &file.object_meta.location).collect();
        paths.dedup();
        match scan.object_store_url.as_str().starts_with("s3://") {
            true => read.objects += paths.len(),
            false => read.files += paths.len(),
        }
        read.bytes += files().map(read_bytes).sum::<u64>();
        return true;
    }
    let cheap = node.is::<FilterExec>()
        || node.is::<ProjectionExec>()
        || node.is::<CooperativeExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.downcast_ref::<HashJoinExec>().is_some_and(is_small_join);
    // Each task would find other values, and call a UDF for each row.
    cheap
        && !is_nondeterministic(node)
        && node.fetch().is_none()
        && children.into_iter().all(|child| is_cheap(child, read))
        && (!node.is::<HashJoinExec>() || estimate(node).rows <= SMALL_ROWS)
}

fn is_small_join(join: &HashJoinExec) -> bool {
    *join.partition_mode() == PartitionMode::CollectLeft && !join.null_aware
}
