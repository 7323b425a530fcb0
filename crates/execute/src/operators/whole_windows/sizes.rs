//! The memory of rows that are kept.
//!
//! Texts are views of buffers that many batches share. So texts are copied before rows are kept if
//! they would keep more than twice their bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericByteViewArray, RecordBatch};
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use datafusion::error::Result;

/// Returns the same rows so that they keep only their own texts in memory.
pub(super) fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    if batch.num_columns() == 0 {
        return Ok(batch.clone());
    }
    let column = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8View => compacted::<StringViewType>(column),
        DataType::BinaryView => compacted::<BinaryViewType>(column),
        _ => Arc::clone(column),
    };
    let columns: Vec<ArrayRef> = batch.columns().iter().map(column).collect();
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

fn compacted<T: ByteViewType>(column: &ArrayRef) -> ArrayRef {
    let views = column.as_byte_view::<T>();
    let kept: usize = views.data_buffers().iter().map(|buffer| buffer.capacity()).sum();
    match kept > 2 * text_bytes(views) {
        true => Arc::new(views.gc()),
        false => Arc::clone(column),
    }
}

/// Bytes of the texts that are not in their views.
fn text_bytes<T: ByteViewType>(views: &GenericByteViewArray<T>) -> usize {
    views.lengths().filter(|length| *length > 12).map(|length| length as usize).sum()
}

/// Bytes of the rows of a batch, which may be a part of a larger one.
pub(super) fn size(batch: &RecordBatch) -> usize {
    let column = |column: &ArrayRef| {
        let texts = match column.data_type() {
            DataType::Utf8View => text_bytes(column.as_byte_view::<StringViewType>()),
            DataType::BinaryView => text_bytes(column.as_byte_view::<BinaryViewType>()),
            _ => 0,
        };
        let rows = column.to_data().get_slice_memory_size();
        rows.unwrap_or_else(|_| column.get_array_memory_size()) + texts
    };
    batch.columns().iter().map(column).sum()
}
