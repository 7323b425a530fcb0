//! The rows at which partitions of a window begin, within a batch and from batch to batch.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::partition;
use arrow::datatypes::Schema;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;

/// The columns by which a window is partitioned, if any. Its rows are sorted by them.
#[derive(Debug)]
pub(super) struct PartitionColumns {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    fields: Vec<SortField>,
    converter: RowConverter,
}

/// The key of one partition; `None` if there is only one.
pub(super) type PartitionKey = Option<OwnedRow>;

/// The partitions of a batch with at least one row.
pub(super) struct PartitionRanges {
    keys: Vec<ArrayRef>,
    /// Ranges of rows, one for each partition; at least one.
    pub(super) ranges: Vec<Range<usize>>,
}

impl PartitionColumns {
    /// Creates the keys of a window. `None` if a column has a type whose values cannot be compared.
    pub(super) fn new(
        expressions: &[Arc<dyn PhysicalExpr>],
        input: &Schema,
    ) -> Result<Option<Self>> {
        let field = |key: &Arc<dyn PhysicalExpr>| Ok(SortField::new(key.data_type(input)?));
        let fields = expressions.iter().map(field).collect::<Result<Vec<_>>>()?;
        if !RowConverter::supports_fields(&fields) {
            return Ok(None);
        }
        let converter = RowConverter::new(fields.clone())?;
        Ok(Some(Self { expressions: expressions.to_vec(), fields, converter }))
    }

    /// Creates the same keys for another stream.
    pub(super) fn again(&self) -> Result<Self> {
        let converter = RowConverter::new(self.fields.clone())?;
        Ok(Self { expressions: self.expressions.clone(), fields: self.fields.clone(), converter })
    }

    /// Finds the partitions of a batch.
    pub(super) fn of(&self, batch: &RecordBatch) -> Result<PartitionRanges> {
        let keys = evaluate_expressions_to_arrays(&self.expressions, batch)?;
        let all = || std::iter::once(0..batch.num_rows()).collect();
        let ranges = if keys.is_empty() { all() } else { partition(&keys)?.ranges() };
        Ok(PartitionRanges { keys, ranges })
    }

    /// True if the first partition of a batch is the one with `key`, or if there was none before,
    /// so that `key` is `None`.
    pub(super) fn continues(
        &self,
        key: Option<&PartitionKey>,
        found: &PartitionRanges,
    ) -> Result<bool> {
        match key {
            Some(key) => Ok(*key == self.first(found)?),
            None => Ok(true),
        }
    }

    /// The key of the first partition.
    pub(super) fn first(&self, found: &PartitionRanges) -> Result<PartitionKey> {
        self.at(found, 0)
    }

    /// The key of the last partition.
    pub(super) fn last(&self, found: &PartitionRanges) -> Result<PartitionKey> {
        self.at(found, found.ranges.last().map_or(0, |range| range.start))
    }

    fn at(&self, found: &PartitionRanges, row: usize) -> Result<PartitionKey> {
        if found.keys.is_empty() {
            return Ok(None);
        }
        let keys: Vec<ArrayRef> = found.keys.iter().map(|key| key.slice(row, 1)).collect();
        Ok(Some(self.converter.convert_columns(&keys)?.row(0).owned()))
    }
}
