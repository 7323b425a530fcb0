//! A partition of a window whose rows wait in scratch until its aggregates are known.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::spill_file::SpillFile;
use datafusion::logical_expr::{Accumulator, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::spill::SpillManager;
use futures::StreamExt;

use super::sizes;

/// Bytes of rows that are collected before they are written: each file takes at least this space.
const FILE_BYTES: usize = 1 << 20;

/// True for an aggregate whose frame is the whole partition.
pub(super) fn is_aggregate_of_all(function: &Arc<dyn WindowExpr>) -> bool {
    let Some(aggregate) = function.as_any().downcast_ref::<PlainAggregateWindowExpr>() else {
        return false;
    };
    let frame = aggregate.get_window_frame();
    // Without an order, all rows are equal to the current one.
    let equal = frame.units == WindowFrameUnits::Range && aggregate.order_by().is_empty();
    let is_end = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => equal,
        bound => bound.is_unbounded(),
    };
    // The condition of a FILTER is not accessible. Windows with one are not sent to workers.
    let has_no_filter = format!("{aggregate:?}").ends_with("filter: None }");
    is_end(&frame.start_bound) && is_end(&frame.end_bound) && has_no_filter
}

/// The rows of a partition, in scratch.
pub(super) struct Spilled {
    functions: Vec<Arc<dyn WindowExpr>>,
    states: Vec<Box<dyn Accumulator>>,
    manager: SpillManager,
    files: VecDeque<Arc<dyn SpillFile>>,
    /// Rows that are not written yet.
    collected: Vec<RecordBatch>,
    bytes: usize,
    /// The results, once all rows are there.
    results: Option<Vec<ScalarValue>>,
    reading: Option<SendableRecordBatchStream>,
}

impl Spilled {
    pub(super) fn new(functions: &[Arc<dyn WindowExpr>], manager: SpillManager) -> Result<Self> {
        let state = |function: &Arc<dyn WindowExpr>| {
            let aggregate = function.as_any().downcast_ref::<PlainAggregateWindowExpr>();
            aggregate.map(|aggregate| aggregate.get_aggregate_expr().create_accumulator())
        };
        let states = functions.iter().filter_map(state).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            functions: functions.to_vec(),
            states,
            manager,
            files: VecDeque::new(),
            collected: Vec::new(),
            bytes: 0,
            results: None,
            reading: None,
        })
    }

    /// Adds rows.
    pub(super) fn add(
        &mut self,
        batch: RecordBatch,
        reservation: &MemoryReservation,
    ) -> Result<()> {
        for (function, state) in self.functions.iter().zip(&mut self.states) {
            state.update_batch(&function.evaluate_args(&batch)?)?;
        }
        self.bytes += sizes::size(&batch);
        self.collected.push(batch);
        if self.bytes >= FILE_BYTES {
            self.write()?;
        }
        // A state may hold all values.
        let states: usize = self.states.iter().map(|state| state.size()).sum();
        reservation.try_resize(states + self.bytes)
    }

    fn write(&mut self) -> Result<()> {
        let written = self.manager.spill_record_batch_and_finish(&self.collected, "window")?;
        self.files.extend(written);
        self.collected.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Notes that all rows are there.
    pub(super) fn complete(&mut self) -> Result<()> {
        if !self.collected.is_empty() {
            self.write()?;
        }
        let results = self.states.iter_mut().map(|state| state.evaluate());
        self.results = Some(results.collect::<Result<Vec<_>>>()?);
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.results.is_some()
    }

    /// The next rows with their results.
    pub(super) async fn next(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(reading) = &mut self.reading
                && let Some(batch) = reading.next().await.transpose()?
            {
                let mut columns = batch.columns().to_vec();
                for result in self.results.iter().flatten() {
                    columns.push(result.to_array_of_size(batch.num_rows())?);
                }
                return Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns)?));
            }
            let Some(file) = self.files.pop_front() else { return Ok(None) };
            self.reading = Some(self.manager.read_spill_as_stream_unbuffered(file, None)?);
        }
    }
}
