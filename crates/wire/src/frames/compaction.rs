//! Batches without the bytes of rows that they do not have.
//!
//! An array of views (`Utf8View`, `BinaryView`) refers to buffers that it shares: with the batch
//! that it was cut or filtered from, or with all groups of an aggregation. A message has these
//! buffers as a whole, so a few rows can become hundreds of megabytes. They are copied here if the
//! rows use less than half of them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{
    Array, ArrayRef, GenericByteViewArray, RecordBatch, RecordBatchOptions, make_array,
};
use arrow_schema::DataType;

use crate::Result;

/// Copies a batch so that at least half of each buffer is used. `None` if that is so already.
pub(crate) fn dense(batch: &RecordBatch) -> Result<Option<RecordBatch>> {
    let Some(columns) = all_dense(batch.columns()) else { return Ok(None) };
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(Some(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?))
}

/// Replaces the arrays that are not dense. `None` if all are dense.
fn all_dense(arrays: &[ArrayRef]) -> Option<Vec<ArrayRef>> {
    let denser: Vec<_> = arrays.iter().map(denser).collect();
    if denser.iter().all(Option::is_none) {
        return None;
    }
    let both = denser.into_iter().zip(arrays);
    Some(both.map(|(denser, array)| denser.unwrap_or_else(|| Arc::clone(array))).collect())
}

/// Copies the values of an array into a denser one. `None` if the array is dense.
fn denser(array: &ArrayRef) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::Utf8View => denser_views(array.as_string_view()),
        DataType::BinaryView => denser_views(array.as_binary_view()),
        nested if nested.is_nested() => denser_children(array),
        _ => None,
    }
}

fn denser_views<T: ByteViewType>(array: &GenericByteViewArray<T>) -> Option<ArrayRef> {
    let buffers: usize = array.data_buffers().iter().map(|buffer| buffer.len()).sum();
    let is_sparse = buffers > 2 * array.total_buffer_bytes_used();
    is_sparse.then(|| Arc::new(array.gc()) as ArrayRef)
}

fn denser_children(array: &ArrayRef) -> Option<ArrayRef> {
    let data = array.to_data();
    let children: Vec<ArrayRef> = data.child_data().iter().cloned().map(make_array).collect();
    let children = all_dense(&children)?;
    let children = children.iter().map(|child| child.to_data()).collect();
    data.into_builder().child_data(children).build().ok().map(make_array)
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, ListArray, StringArray, StringViewArray, StructArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Field;

    use super::*;
    use crate::{BatchDecoder, BatchEncoder};

    const ROWS: usize = 10_000;

    /// An array of texts that are too long to be in their views.
    fn texts() -> StringViewArray {
        let text = |row| (row % 7 > 0).then(|| format!("a text of some length, row {row}"));
        (0..ROWS).map(text).collect()
    }

    /// The length in bytes of the message with a column, which is checked to decode to the same
    /// rows.
    fn encoded(column: ArrayRef) -> usize {
        let batch = RecordBatch::try_from_iter([("column", column)]).unwrap();
        let mut encoder = BatchEncoder::default();
        let mut decoder = BatchDecoder::default();
        decoder.push(&encoder.schema(&batch.schema()).unwrap()).unwrap();
        let frame = encoder.batch(&batch).unwrap();
        assert_eq!(decoder.push(&frame).unwrap(), [batch]);
        frame.payload.len()
    }

    #[test]
    fn a_slice_of_views_is_sent_without_the_other_rows() {
        let all: ArrayRef = Arc::new(texts());
        assert!(encoded(Arc::clone(&all)) > 40 * ROWS);
        assert!(encoded(all.slice(5000, 10)) < 2000);
        assert!(encoded(all.slice(5000, 0)) < 1000);
        let bytes: ArrayRef = Arc::new(texts().to_binary_view());
        assert!(encoded(bytes.slice(9000, 10)) < 2000);
    }

    #[test]
    fn views_within_other_types_are_sent_without_the_other_rows() {
        let texts: ArrayRef = Arc::new(texts());
        let field = Arc::new(Field::new("text", DataType::Utf8View, true));
        let structs = StructArray::from(vec![(Arc::clone(&field), Arc::clone(&texts))]);
        assert!(encoded(Arc::new(structs.slice(5000, 10))) < 2000);
        let offsets = OffsetBuffer::from_lengths([4, 6]);
        let lists = ListArray::new(field, offsets, texts.slice(5000, 10), None);
        assert!(encoded(Arc::new(lists)) < 2000);
    }

    #[test]
    fn dense_columns_are_not_copied() {
        let columns: [ArrayRef; 3] = [
            Arc::new(texts()),
            Arc::new(StringArray::from(vec!["x"; ROWS])),
            Arc::new(Int64Array::from(vec![1; ROWS])),
        ];
        assert!(columns.iter().all(|column| denser(column).is_none()));
    }
}
