//! Sorts of all rows: which of them workers merge in ranges of keys.
//!
//! Each task sorts its rows. The sorted rows of all tasks are merged by the driver, or by the tasks
//! of another stage, each of which merges a range of keys; then the driver passes the ranges on, one
//! after another. For few rows the other stage costs more than it saves.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use snowmelt_execute::sort_keys::SortKeys;
use snowmelt_execute::tree::count;

use super::{Size, size};
use crate::Result;
use crate::operators::is_nondeterministic;

/// Finds the merge of sorted partitions whose estimated bytes are enough for it to be divided into
/// ranges.
pub(crate) fn large_merge(
    node: &Arc<dyn ExecutionPlan>,
    least_bytes: u64,
) -> Result<Option<&SortPreservingMergeExec>> {
    let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else { return Ok(None) };
    let sorted = merge.input();
    let Some(sort) = sorted.downcast_ref::<SortExec>() else { return Ok(None) };
    // The keys are computed again where ranges begin and end.
    let same_keys = sort.expr() == merge.expr() && !is_nondeterministic(sorted);
    if !same_keys || count(sorted) < 2 || bytes(sort, sorted) < least_bytes {
        return Ok(None);
    }
    let schema = sorted.schema();
    let divisible = !has_dictionary(&schema) && SortKeys::new(sort.expr(), &schema)?.is_some();
    Ok(divisible.then_some(merge))
}

/// Returns the estimated bytes of the sorted rows of all tasks.
fn bytes(sort: &SortExec, node: &Arc<dyn ExecutionPlan>) -> u64 {
    let Size { rows, bytes } = size(sort.input());
    let most = sort.fetch().map_or(rows, |fetch| rows.min(fetch as f64 * count(node) as f64));
    (bytes / rows.max(1.0) * most) as u64
}

/// True if a column is a dictionary. A dictionary is written once, before the first frame that
/// needs it: a reader of later frames would lack it.
fn has_dictionary(schema: &Schema) -> bool {
    fn is_one(kind: &DataType) -> bool {
        match kind {
            DataType::Dictionary(..) => true,
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::FixedSizeList(field, _)
            | DataType::Map(field, _) => is_one(field.data_type()),
            DataType::Struct(fields) => fields.iter().any(|field| is_one(field.data_type())),
            DataType::RunEndEncoded(_, values) => is_one(values.data_type()),
            DataType::Union(fields, _) => fields.iter().any(|(_, field)| is_one(field.data_type())),
            _ => false,
        }
    }
    schema.fields().iter().any(|field| is_one(field.data_type()))
}
