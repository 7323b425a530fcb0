//! `row_number()` over sorted rows.
//!
//! DataFusion keeps the state of a window function for each partition of its window, with dozens of
//! allocations for each. To number rows, a counter is enough.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::partition;
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode, SendableRecordBatchStream};
use futures::{StreamExt, stream};

use super::{Batches, Execution};

/// The execution for a window that computes only row numbers; `None` for other nodes.
pub(super) fn execution_for(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn Execution>>> {
    let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() else { return Ok(None) };
    let [first, ..] = window.window_expr() else { return Ok(None) };
    let is_sorted = window.input_order_mode == InputOrderMode::Sorted;
    if !is_sorted || !window.window_expr().iter().all(numbers_rows) {
        return Ok(None);
    }
    let keys = first.partition_by().to_vec();
    let input = window.input().schema();
    let field = |key: &Arc<dyn PhysicalExpr>| Ok(SortField::new(key.data_type(&input)?));
    let fields = keys.iter().map(field).collect::<Result<Vec<_>>>()?;
    if !RowConverter::supports_fields(&fields) {
        return Ok(None);
    }
    let columns = window.window_expr().len();
    Ok(Some(Arc::new(RowNumber { keys, fields, columns, schema: window.schema() })))
}

fn numbers_rows(expression: &Arc<dyn WindowExpr>) -> bool {
    let standard = expression.as_any().downcast_ref::<StandardWindowExpr>();
    let function = standard.and_then(|standard| {
        standard
            .get_standard_func_expr()
            .as_any()
            .downcast_ref::<WindowUDFExpr>()
            .map(WindowUDFExpr::fun)
    });
    function.is_some_and(|function| function.name() == "row_number")
}

#[derive(Debug)]
struct RowNumber {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    fields: Vec<SortField>,
    /// Number of columns with the row number.
    columns: usize,
    schema: SchemaRef,
}

impl Execution for RowNumber {
    fn run(
        &self,
        input: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<Batches> {
        let numbering = Numbering {
            keys: self.keys.clone(),
            converter: RowConverter::new(self.fields.clone())?,
            columns: self.columns,
            schema: Arc::clone(&self.schema),
            last: None,
            number: 0,
        };
        let state = (input, numbering, metrics);
        let numbered =
            stream::try_unfold(state, |(mut input, mut numbering, metrics)| async move {
                let Some(batch) = input.next().await.transpose()? else {
                    return Ok::<_, DataFusionError>(None);
                };
                let timer = metrics.elapsed_compute().timer();
                let batch = numbering.number(&batch)?;
                timer.done();
                metrics.record_output(batch.num_rows());
                Ok(Some((batch, (input, numbering, metrics))))
            });
        Ok(numbered.boxed())
    }
}

/// Numbers rows from batch to batch.
struct Numbering {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    converter: RowConverter,
    columns: usize,
    schema: SchemaRef,
    /// The keys of the last row.
    last: Option<OwnedRow>,
    number: u64,
}

impl Numbering {
    fn number(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let keys = evaluate_expressions_to_arrays(&self.keys, batch)?;
        let mut numbers = Vec::with_capacity(rows);
        if rows > 0 {
            if self.keys_at(&keys, 0)? != self.last {
                self.number = 0;
            }
            let all = || std::iter::once(0..rows).collect();
            let ranges = if keys.is_empty() { all() } else { partition(&keys)?.ranges() };
            for range in ranges {
                if range.start > 0 {
                    self.number = 0;
                }
                let length = range.len() as u64;
                numbers.extend(self.number + 1..=self.number + length);
                self.number += length;
            }
            self.last = self.keys_at(&keys, rows - 1)?;
        }
        let numbers: ArrayRef = Arc::new(UInt64Array::from(numbers));
        let added = std::iter::repeat_n(numbers, self.columns);
        let columns = batch.columns().iter().cloned().chain(added).collect();
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    /// The keys of one row; `None` without keys.
    fn keys_at(&self, keys: &[ArrayRef], row: usize) -> Result<Option<OwnedRow>> {
        if keys.is_empty() {
            return Ok(None);
        }
        let keys: Vec<ArrayRef> = keys.iter().map(|key| key.slice(row, 1)).collect();
        Ok(Some(self.converter.convert_columns(&keys)?.row(0).owned()))
    }
}
