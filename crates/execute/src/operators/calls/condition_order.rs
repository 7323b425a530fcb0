//! Evaluates conditions with calls in the order of what they cost, measured while they run.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{BatchCoalescer, filter, prep_null_mask_filter};
use arrow::datatypes::SchemaRef;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt;

use super::conditions::{Conditions, Over};

/// Rows of the first batch that show which condition to begin with for the rest of it.
const TRIAL_ROWS: usize = 256;

/// The number of measurements after which those of earlier rows count half.
const HALF_AFTER: u32 = 16;

/// The rows of a partition.
pub(super) struct MeasuredRows {
    input: SendableRecordBatchStream,
    conditions: Arc<Conditions>,
    order: ConditionOrder,
    schema: SchemaRef,
    passed: BatchCoalescer,
    /// True if the input has ended.
    is_complete: bool,
    metrics: BaselineMetrics,
}

impl MeasuredRows {
    pub(super) fn new(
        input: SendableRecordBatchStream,
        conditions: Arc<Conditions>,
        schema: SchemaRef,
        batch_rows: usize,
        metrics: BaselineMetrics,
    ) -> Self {
        let order = ConditionOrder::new(conditions.calling.len());
        let passed = BatchCoalescer::new(Arc::clone(&schema), batch_rows)
            .with_biggest_coalesce_batch_size(Some(batch_rows / 2));
        Self { input, conditions, order, schema, passed, is_complete: false, metrics }
    }

    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.passed.next_completed_batch() {
                self.metrics.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
            if self.is_complete {
                return Ok(None);
            }
            let batch = self.input.next().await.transpose()?;
            let time = self.metrics.elapsed_compute().clone();
            let _timer = time.timer();
            match batch {
                Some(batch) => self.push(&batch)?,
                None => {
                    self.is_complete = true;
                    self.passed.finish_buffered_batch()?;
                }
            }
        }
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let trial = match self.order.is_measured() || batch.num_rows() <= 2 * TRIAL_ROWS {
            true => 0,
            false => TRIAL_ROWS,
        };
        for (from, to) in [(0, trial), (trial, batch.num_rows())] {
            if from < to {
                let passed = self.filter(&batch.slice(from, to - from))?;
                self.passed.push_batch(passed)?;
            }
        }
        Ok(())
    }

    /// The rows that pass, with the columns of the result.
    fn filter(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let conditions = Arc::clone(&self.conditions);
        let mut left = Left::new(batch, &conditions);
        if let Some(native) = &conditions.native {
            left.keep(native)?;
        }
        for condition in self.order.now() {
            let rows = left.rows;
            if rows == 0 {
                break;
            }
            let began = Instant::now();
            left.keep(&conditions.calling[condition])?;
            self.order.note(condition, began.elapsed().as_nanos() as f64, rows, left.rows);
        }
        let columns = match left.rows {
            // Nothing is computed for no row.
            0 => return Ok(RecordBatch::new_empty(Arc::clone(&self.schema))),
            _ => left.columns(&conditions.output)?,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(left.rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// The rows of a batch that are left.
struct Left<'a> {
    conditions: &'a Conditions,
    /// The columns of the row; `None` for those that are not computed yet, or not needed.
    row: Vec<Option<ArrayRef>>,
    rows: usize,
}

impl<'a> Left<'a> {
    fn new(batch: &RecordBatch, conditions: &'a Conditions) -> Self {
        let needed = |index: &usize| {
            let all = conditions.computed.iter().chain(&conditions.native);
            let mut needs = all.chain(&conditions.calling).flat_map(|over| &over.needs);
            conditions.output.contains(index) || needs.any(|need| need == index)
        };
        let columns = batch.columns().iter().enumerate();
        let columns = columns.map(|(index, column)| needed(&index).then(|| Arc::clone(column)));
        let row = columns.chain(conditions.computed.iter().map(|_| None)).collect();
        Self { conditions, row, rows: batch.num_rows() }
    }

    /// Keeps the rows for which a condition is true.
    fn keep(&mut self, condition: &Over) -> Result<()> {
        let values = self.evaluate(condition)?;
        let values = as_boolean_array(&values)?;
        let passed = match values.null_count() {
            0 => values.clone(),
            _ => prep_null_mask_filter(values),
        };
        let rows = passed.true_count();
        if rows < self.rows {
            self.filter(&passed)?;
            self.rows = rows;
        }
        Ok(())
    }

    fn filter(&mut self, passed: &BooleanArray) -> Result<()> {
        for column in self.row.iter_mut().flatten() {
            *column = filter(column, passed)?;
        }
        Ok(())
    }

    fn evaluate(&mut self, over: &Over) -> Result<ArrayRef> {
        let columns = self.columns(&over.needs)?;
        over.evaluate(columns, self.rows)
    }

    /// Some columns of the row. Those that are missing are computed.
    fn columns(&mut self, indexes: &[usize]) -> Result<Vec<ArrayRef>> {
        let mut columns = Vec::with_capacity(indexes.len());
        for index in indexes {
            if self.row[*index].is_none() {
                let computed = index.checked_sub(self.conditions.inputs);
                let over = computed.and_then(|computed| self.conditions.computed.get(computed));
                let missing = || internal_datafusion_err!("column {index} is missing");
                let values = self.evaluate(over.ok_or_else(missing)?)?;
                self.row[*index] = Some(values);
            }
            columns.extend(self.row[*index].clone());
        }
        Ok(columns)
    }
}

/// The order of conditions.
#[derive(Debug)]
struct ConditionOrder {
    measured: Vec<Measured>,
}

/// The measured time of a condition in nanoseconds, with the numbers of its rows, of rows that
/// passed, and of evaluations.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    nanos: f64,
    rows: f64,
    passed: f64,
    times: u32,
}

impl Measured {
    /// Returns the time for each row that the condition drops, in nanoseconds.
    fn rank(&self) -> f64 {
        let time = self.nanos / self.rows;
        let dropped = 1.0 - self.passed / self.rows;
        // One that drops none is as good as one that drops few, if it is as cheap.
        time / dropped.max(1e-6)
    }
}

impl ConditionOrder {
    fn new(conditions: usize) -> Self {
        Self { measured: vec![Measured::default(); conditions] }
    }

    /// True if all conditions have been measured, or there is only one.
    fn is_measured(&self) -> bool {
        self.measured.len() < 2 || self.measured.iter().all(|measured| measured.rows > 0.0)
    }

    /// The conditions by their rank; then those that no row has reached, as they are written.
    fn now(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.measured.len()).collect();
        let rank = |index: &usize| match self.measured[*index] {
            it if it.rows > 0.0 => it.rank(),
            _ => f64::INFINITY,
        };
        order.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        order
    }

    fn note(&mut self, condition: usize, nanos: f64, rows: usize, passed: usize) {
        let it = &mut self.measured[condition];
        if it.times == HALF_AFTER {
            *it = Measured {
                nanos: it.nanos / 2.0,
                rows: it.rows / 2.0,
                passed: it.passed / 2.0,
                times: 0,
            };
        }
        it.nanos += nanos;
        it.rows += rows as f64;
        it.passed += passed as f64;
        it.times += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_and_most_selective_condition_is_first() {
        let mut order = ConditionOrder::new(3);
        assert_eq!(order.now(), [0, 1, 2]);
        assert!(!order.is_measured());
        // 10 us a row, a tenth is dropped.
        order.note(0, 1e7, 1000, 900);
        // As expensive, but half is dropped.
        order.note(1, 9e6, 900, 450);
        // A tenth of the price for a tenth of the rows.
        order.note(2, 450e3, 450, 405);
        assert!(order.is_measured());
        assert_eq!(order.now(), [2, 1, 0]);
    }

    #[test]
    fn a_condition_that_no_row_has_reached_stays_behind() {
        let mut order = ConditionOrder::new(2);
        order.note(0, 1e9, 1000, 0);
        assert_eq!(order.now(), [0, 1]);
        assert!(!order.is_measured());
    }

    #[test]
    fn a_condition_that_drops_nothing_is_last_unless_others_drop_nothing_either() {
        let mut order = ConditionOrder::new(2);
        order.note(0, 1e3, 1000, 1000);
        order.note(1, 1e6, 1000, 500);
        assert_eq!(order.now(), [1, 0]);
        let mut order = ConditionOrder::new(2);
        order.note(0, 2e6, 1000, 1000);
        order.note(1, 1e6, 1000, 1000);
        assert_eq!(order.now(), [1, 0]);
    }

    #[test]
    fn new_rows_change_the_order() {
        let mut order = ConditionOrder::new(2);
        order.note(0, 1e6, 1000, 10);
        order.note(1, 1e6, 1000, 990);
        assert_eq!(order.now(), [0, 1]);
        for _ in 0..4 * HALF_AFTER {
            order.note(0, 1e6, 1000, 1000);
            order.note(1, 1e6, 1000, 500);
        }
        assert_eq!(order.now(), [1, 0]);
    }
}
