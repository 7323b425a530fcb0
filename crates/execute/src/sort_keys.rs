//! Sort keys of rows as bytes: comparing the bytes of two rows compares the rows, for any number of
//! columns, ascending or descending, with nulls first or last.
//!
//! Bytes that two processes make for the same order can be compared. Floating point numbers have
//! their total order: -0.0 is before 0.0, and NaN is after infinity.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::error::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};

/// Makes the keys of an order.
#[derive(Debug)]
pub struct SortKeys {
    order: LexOrdering,
    converter: RowConverter,
}

impl SortKeys {
    /// Creates the keys of an order. `None` if a column has a type whose values have no such bytes.
    pub fn new(order: &LexOrdering, schema: &Schema) -> Result<Option<Self>> {
        let field = |key: &PhysicalSortExpr| {
            Ok(SortField::new_with_options(key.expr.data_type(schema)?, key.options))
        };
        let fields = order.iter().map(field).collect::<Result<Vec<_>>>()?;
        if !RowConverter::supports_fields(&fields) {
            return Ok(None);
        }
        let converter = RowConverter::new(fields)?;
        Ok(Some(Self { order: order.clone(), converter }))
    }

    /// The key of each row.
    pub fn of(&self, batch: &RecordBatch) -> Result<Rows> {
        let rows = batch.num_rows();
        let column = |key: &PhysicalSortExpr| key.expr.evaluate(batch)?.into_array(rows);
        let columns = self.order.iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(self.converter.convert_columns(&columns)?)
    }

    /// The key of one row.
    pub(crate) fn of_row(&self, batch: &RecordBatch, row: usize) -> Result<Vec<u8>> {
        Ok(self.of(&batch.slice(row, 1))?.row(0).data().to_vec())
    }
}
