//! The answer's columns as users get them.
//!
//! Inside a query strings are views; outside, many readers of Arrow do not know those yet.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};

use crate::Result;

/// The schema of the answer.
pub(crate) fn shown_schema(schema: &Schema) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().iter().map(shown_field).collect::<Vec<_>>()))
}

fn shown_field(field: &FieldRef) -> FieldRef {
    let plain = match field.data_type() {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(plain))
}

/// A batch of the answer.
pub(super) fn shown(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let plain = batch.columns().iter().zip(schema.fields());
    let columns = plain.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast(column, field.data_type()),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
