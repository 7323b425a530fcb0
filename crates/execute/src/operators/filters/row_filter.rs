//! An operator that filters the rows of a scan as long as this drops enough of them.
//!
//! Joins above the operator fill its filters and check the rows themselves, so it need not be
//! exact: it may pass any row.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{BatchCoalescer, filter_record_batch};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};
use futures::{StreamExt, stream};

use crate::tree::visit_expressions;

/// Batches that decide whether a filter is worth its evaluation.
const TRIAL_BATCHES: u32 = 4;

/// Batches that pass unfiltered after the filter was not worth it; then it is tried again, because
/// the next rows may have other keys. At most one batch in 16 is filtered in vain.
const PAUSE_BATCHES: u32 = 60;

/// A filter, and what decides whether it is evaluated.
#[derive(Clone, Debug)]
pub(super) struct RowFilter {
    pub(super) expression: Arc<dyn PhysicalExpr>,
    /// The largest share of rows, in percent, that may pass if the filter is worth its evaluation.
    pub(super) most_percent: usize,
}

/// Drops rows for which a filter is false or null, or passes them: the operators that read the rows
/// must drop them, too.
///
/// The properties are those of the input: filtering keeps order and partitions.
#[derive(Debug)]
pub(super) struct RowFilterExec {
    filters: Vec<RowFilter>,
    input: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl RowFilterExec {
    pub(super) fn new(filters: Vec<RowFilter>, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { filters, input, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for RowFilterExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        let mut filters = self.filters.iter().map(|filter| &filter.expression);
        filters.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        filters.try_for_each(|filter| write!(f, " AND {filter}"))
    }
}

impl ExecutionPlan for RowFilterExec {
    fn name(&self) -> &str {
        "RowFilterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        visit_expressions(self.filters.iter().map(|filter| &filter.expression), visit)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let filters = self.filters.clone();
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(filters, input))),
            _ => Err(DataFusionError::Internal(format!("{} has one input", self.name()))),
        }
    }

    crate::children_by_replacement!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batch_rows = context.session_config().batch_size();
        let rows = TrialRows {
            input: self.input.execute(partition, context)?,
            trials: self.filters.iter().cloned().map(Trial::new).collect(),
            // Batches of half the size are passed on without a copy.
            passed: BatchCoalescer::new(self.schema(), batch_rows)
                .with_biggest_coalesce_batch_size(Some(batch_rows / 2)),
            is_complete: false,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let batches = stream::try_unfold(rows, |mut rows| async move {
            Ok(rows.next().await?.map(|batch| (batch, rows)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The rows of a partition.
struct TrialRows {
    input: SendableRecordBatchStream,
    trials: Vec<Trial>,
    passed: BatchCoalescer,
    /// True if the input has ended.
    is_complete: bool,
    metrics: BaselineMetrics,
}

impl TrialRows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.passed.next_completed_batch() {
                self.metrics.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
            if self.is_complete {
                return Ok(None);
            }
            let batch = self.input.next().await.transpose()?;
            let _timer = self.metrics.elapsed_compute().timer();
            match batch {
                Some(mut batch) => {
                    let mut ended = false;
                    for trial in &mut self.trials {
                        batch = trial.apply(batch, &mut ended)?;
                    }
                    if ended {
                        // The next filter then has the fewest rows.
                        self.trials.sort_by_key(|trial| trial.worth.per_mille);
                    }
                    self.passed.push_batch(batch)?;
                }
                None => {
                    self.is_complete = true;
                    self.passed.finish_buffered_batch()?;
                }
            }
        }
    }
}

/// A filter that is evaluated while it drops enough rows.
struct Trial {
    filter: RowFilter,
    worth: Worth,
}

impl Trial {
    fn new(filter: RowFilter) -> Self {
        Self { worth: Worth::new(filter.most_percent), filter }
    }

    /// Sets `ended` if there is a new result of the trial.
    fn apply(&mut self, batch: RecordBatch, ended: &mut bool) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        if rows == 0 || !self.worth.try_next() {
            return Ok(batch);
        }
        let result = self.filter.expression.evaluate(&batch)?.into_array(rows)?;
        let keep = as_boolean_array(&result)?;
        let passed = keep.true_count();
        *ended |= self.worth.note(rows, passed);
        match passed == rows {
            true => Ok(batch),
            false => Ok(filter_record_batch(&batch, keep)?),
        }
    }
}

/// Decides by the rows of the last batches whether a filter is evaluated for the next one.
#[derive(Debug)]
struct Worth {
    most_percent: usize,
    /// Batches left of a pause.
    pause: u32,
    /// Batches, rows and passed rows of the current trial.
    batches: u32,
    rows: usize,
    passed: usize,
    /// The passed rows of the last trial.
    per_mille: usize,
}

impl Worth {
    fn new(most_percent: usize) -> Self {
        Self { most_percent, pause: 0, batches: 0, rows: 0, passed: 0, per_mille: 0 }
    }

    fn try_next(&mut self) -> bool {
        let evaluate = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        evaluate
    }

    /// True if the trial ended.
    fn note(&mut self, rows: usize, passed: usize) -> bool {
        self.batches += 1;
        self.rows += rows;
        self.passed += passed;
        if self.batches < TRIAL_BATCHES {
            return false;
        }
        let is_worth = self.passed * 100 <= self.rows * self.most_percent;
        self.pause = if is_worth { 0 } else { PAUSE_BATCHES };
        self.per_mille = self.passed * 1000 / self.rows.max(1);
        (self.batches, self.rows, self.passed) = (0, 0, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of batches in which a filter is evaluated that passes these percents of the rows.
    fn evaluated(percents: impl Iterator<Item = usize>) -> u32 {
        let mut worth = Worth::new(90);
        let mut evaluated = 0;
        for percent in percents {
            if worth.try_next() {
                evaluated += 1;
                worth.note(1000, percent * 10);
            }
        }
        evaluated
    }

    #[test]
    fn a_filter_that_drops_rows_is_always_evaluated() {
        assert_eq!(evaluated((0..1000).map(|_| 90)), 1000);
    }

    #[test]
    fn a_filter_that_drops_few_rows_is_rarely_evaluated() {
        assert_eq!(evaluated((0..640).map(|_| 91)), 40);
    }

    #[test]
    fn a_filter_that_begins_to_drop_rows_is_evaluated_again() {
        let percents = (0..640).map(|batch| if batch < 100 { 100 } else { 10 });
        assert!(evaluated(percents) >= 640 - 100 - 64);
    }
}
