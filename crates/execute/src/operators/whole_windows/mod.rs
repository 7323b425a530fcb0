//! Window functions that need all rows of a partition of their window.
//!
//! DataFusion's operator collects all rows of its input, and reserves no memory for them. Here a
//! partition of the window is given on as soon as it is complete. One that does not fit into memory
//! goes to scratch if each of its functions is an aggregate of the whole partition: its rows are
//! aggregated while they come, and read again with the results.

mod partitions;
mod sizes;
mod spill;

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{concat, concat_batches};
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{StreamExt, stream};

use super::{Batches, Execution};
use partitions::{PartitionColumns, PartitionKey};
use spill::{Spilled, is_aggregate_of_all};

/// Bytes of memory for the result of one function for one row: results of a frame that moves are
/// first collected as values of any type.
const RESULT_BYTES: usize = 80;

/// True for windows whose rows can wait in scratch.
pub(crate) fn aggregates_whole_partitions(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<WindowAggExec>()
        .is_some_and(|window| window.window_expr().iter().all(is_aggregate_of_all))
}

/// The execution for windows that need whole partitions; `None` for other nodes.
pub(super) fn execution_for(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn Execution>>> {
    let Some(window) = node.downcast_ref::<WindowAggExec>() else { return Ok(None) };
    let [first, ..] = window.window_expr() else { return Ok(None) };
    let Some(keys) = PartitionColumns::new(first.partition_by(), &window.input().schema())? else {
        return Ok(None);
    };
    Ok(Some(Arc::new(WholeWindows {
        functions: window.window_expr().to_vec(),
        keys,
        schema: window.schema(),
        can_spill: aggregates_whole_partitions(node),
    })))
}

#[derive(Debug)]
struct WholeWindows {
    functions: Vec<Arc<dyn WindowExpr>>,
    keys: PartitionColumns,
    schema: SchemaRef,
    can_spill: bool,
}

impl Execution for WholeWindows {
    fn run(
        &self,
        input: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<Batches> {
        let runtime = context.runtime_env();
        let spills = self.can_spill && runtime.disk_manager.tmp_files_enabled();
        let spill = spills.then(|| {
            let counts = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
            SpillManager::new(runtime, counts, input.schema())
        });
        let memory = MemoryConsumer::new("WindowAggExec").with_can_spill(spills);
        let windows = Windows {
            functions: self.functions.clone(),
            keys: self.keys.again()?,
            schema: Arc::clone(&self.schema),
            batch_rows: context.session_config().batch_size(),
            spill,
            reservation: memory.register(context.memory_pool()),
            input: Some(input),
            waiting: None,
            complete: Vec::new(),
            open: Vec::new(),
            key: None,
            spilled: None,
            ready: VecDeque::new(),
            given: 0,
            metrics,
        };
        let run = stream::try_unfold(windows, |mut windows| async move {
            let batch = windows.next().await?;
            Ok::<_, DataFusionError>(batch.map(|batch| {
                windows.metrics.record_output(batch.num_rows());
                (batch, windows)
            }))
        });
        Ok(run.boxed())
    }
}

/// Reads rows and gives them on with the results.
struct Windows {
    functions: Vec<Arc<dyn WindowExpr>>,
    keys: PartitionColumns,
    schema: SchemaRef,
    batch_rows: usize,
    /// `None` if nothing can go to scratch.
    spill: Option<SpillManager>,
    /// Memory for the rows of `complete`, `open` and `ready`, or the states of `spilled`.
    reservation: MemoryReservation,
    /// The rows to read. `None` at their end.
    input: Option<SendableRecordBatchStream>,
    /// Rows that were read and have no place yet.
    waiting: Option<RecordBatch>,
    /// Whole partitions.
    complete: Vec<RecordBatch>,
    /// The rows of the partition that goes on.
    open: Vec<RecordBatch>,
    /// The key of the partition that goes on; `None` before the first row.
    key: Option<PartitionKey>,
    /// The partition that goes on, if it is in scratch.
    spilled: Option<Spilled>,
    /// Rows with their results.
    ready: VecDeque<RecordBatch>,
    /// Bytes that are reserved for `ready`.
    given: usize,
    metrics: BaselineMetrics,
}

impl Windows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            self.reservation.shrink(std::mem::take(&mut self.given));
            if let Some(spilled) = self.spilled.as_mut().filter(|spilled| spilled.is_complete()) {
                if let Some(batch) = spilled.next(&self.schema).await? {
                    return Ok(Some(batch));
                }
                self.spilled = None;
                self.reservation.free();
            }
            if let Some(batch) = self.waiting.take() {
                self.push(batch)?;
                continue;
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            let read = input.next().await.transpose()?;
            match read {
                Some(batch) if batch.num_rows() == 0 => (),
                Some(batch) => self.push(batch)?,
                None => {
                    self.input = None;
                    self.end()?;
                }
            }
        }
    }

    /// Takes rows, or leaves them waiting until there is room.
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let metrics = self.metrics.clone();
        let _timer = metrics.elapsed_compute().timer();
        let batch = sizes::compact(&batch)?;
        let keys = self.keys.of(&batch)?;
        if self.spilled.is_some() {
            return self.push_spilled(batch, &keys);
        }
        if let Err(refused) = self.reservation.try_grow(self.needed(&batch)) {
            self.waiting = Some(batch);
            return match (self.complete.is_empty(), self.spill.is_some()) {
                (false, _) => self.evaluate(),
                (true, true) => self.begin_spilled(),
                (true, false) => Err(refused),
            };
        }
        let continues = self.keys.continues(self.key.as_ref(), &keys)?;
        let last = keys.ranges.last().map_or(0, |range| range.start);
        if last > 0 || !continues {
            self.complete.append(&mut self.open);
            if last > 0 {
                self.complete.push(batch.slice(0, last));
            }
        }
        self.key = Some(self.keys.last(&keys)?);
        self.open.push(batch.slice(last, batch.num_rows() - last));
        let rows: usize = self.complete.iter().map(RecordBatch::num_rows).sum();
        if rows >= self.batch_rows { self.evaluate() } else { Ok(()) }
    }

    /// Adds the rows of the partition that is in scratch. The others wait until it was read again.
    fn push_spilled(
        &mut self,
        batch: RecordBatch,
        keys: &partitions::PartitionRanges,
    ) -> Result<()> {
        let Some(spilled) = &mut self.spilled else { return Ok(()) };
        let continues = self.keys.continues(self.key.as_ref(), keys)?;
        let end = keys.ranges.first().filter(|_| continues).map_or(0, |range| range.end);
        let rows = batch.num_rows();
        if end > 0 {
            self.key = Some(self.keys.first(keys)?);
            spilled.add(batch.slice(0, end), &self.reservation)?;
        }
        if end < rows {
            spilled.complete()?;
            self.key = None;
            self.waiting = Some(batch.slice(end, rows - end));
        }
        Ok(())
    }

    /// Moves the partition that goes on to scratch.
    fn begin_spilled(&mut self) -> Result<()> {
        let Some(spill) = &self.spill else { return Ok(()) };
        let mut spilled = Spilled::new(&self.functions, spill.clone())?;
        self.reservation.free();
        for batch in self.open.drain(..) {
            spilled.add(batch, &self.reservation)?;
        }
        self.spilled = Some(spilled);
        Ok(())
    }

    /// Ends the rows: no more come.
    fn end(&mut self) -> Result<()> {
        if let Some(spilled) = &mut self.spilled {
            return spilled.complete();
        }
        self.complete.append(&mut self.open);
        self.evaluate()
    }

    /// Computes the results for whole partitions.
    fn evaluate(&mut self) -> Result<()> {
        let Some(first) = self.complete.first() else { return Ok(()) };
        let needed: usize = self.complete.iter().map(|batch| self.needed(batch)).sum();
        let batch = concat_batches(&first.schema(), &self.complete)?;
        self.complete.clear();
        let mut results: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.functions.len()];
        for range in self.keys.of(&batch)?.ranges {
            let rows = batch.slice(range.start, range.len());
            for (function, results) in self.functions.iter().zip(&mut results) {
                results.push(function.evaluate(&rows)?);
            }
        }
        let mut columns = batch.columns().to_vec();
        for parts in results {
            columns.push(concat(&parts.iter().map(|part| part.as_ref()).collect::<Vec<_>>())?);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        for start in (0..batch.num_rows()).step_by(self.batch_rows) {
            self.ready.push_back(batch.slice(start, self.batch_rows.min(batch.num_rows() - start)));
        }
        self.given = needed.min(self.reservation.size());
        Ok(())
    }

    /// Memory for some rows, a copy of them, and their results.
    fn needed(&self, batch: &RecordBatch) -> usize {
        2 * sizes::size(batch) + self.functions.len() * RESULT_BYTES * batch.num_rows()
    }
}
