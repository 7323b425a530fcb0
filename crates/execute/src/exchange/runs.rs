//! Reads a range of keys from the sorted outputs of several tasks, and merges them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, Time};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use snowmelt_wire::{Edge, KeyRange};

use super::decoder::FrameReader;
use super::inputs::PartReader;
use crate::sort_keys::SortKeys;

/// Merges sorted parts of the outputs of a stage, each within its range of keys.
///
/// Rows with equal keys have the order of the tasks that wrote them: the same each time.
pub(super) fn merged(
    runs: Vec<(PartReader, KeyRange)>,
    order: &LexOrdering,
    schema: &SchemaRef,
    reservation: MemoryReservation,
    batch_rows: usize,
    metrics: BaselineMetrics,
) -> Result<SendableRecordBatchStream> {
    let unsupported =
        || DataFusionError::Internal("a column of a sorted exchange has no sort keys".to_owned());
    let keys = Arc::new(SortKeys::new(order, schema)?.ok_or_else(unsupported)?);
    let run = |reader: PartReader, range: KeyRange| -> SendableRecordBatchStream {
        let decoding = metrics.elapsed_compute().clone();
        let run = SortedRun { reader, range, keys: Arc::clone(&keys), decoding };
        let batches = stream::try_unfold(run, |mut run| async move {
            Ok(run.next().await?.map(|batch| (batch, run)))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), batches))
    };
    let runs: Vec<_> = runs.into_iter().map(|(reader, range)| run(reader, range)).collect();
    if runs.is_empty() {
        return Ok(Box::pin(EmptyRecordBatchStream::new(Arc::clone(schema))));
    }
    StreamingMergeBuilder::new()
        .with_streams(runs)
        .with_schema(Arc::clone(schema))
        .with_expressions(order)
        .with_metrics(metrics)
        .with_batch_size(batch_rows)
        .with_reservation(reservation)
        // It would take equal rows by turns, in an order that depends on how fast each is read.
        .with_round_robin_tie_breaker(false)
        .build()
}

/// A sorted part of the output of one task.
struct SortedRun {
    reader: PartReader,
    /// The keys of the rows that are read; rows outside are dropped. An edge is absent if no row
    /// can be outside of it.
    range: KeyRange,
    keys: Arc<SortKeys>,
    decoding: Time,
}

impl SortedRun {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(frame) = self.reader.frame().await? {
            let decoding = self.decoding.clone();
            let _timer = decoding.timer();
            let Some(batch) = self.reader.decode(&frame)? else { continue };
            let (batch, is_last) = self.inside(batch)?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
            if is_last {
                break;
            }
        }
        Ok(None)
    }

    /// The rows of a batch that are in the range, and whether it ends with them.
    fn inside(&mut self, batch: RecordBatch) -> Result<(RecordBatch, bool)> {
        if batch.num_rows() == 0 {
            return Ok((batch, false));
        }
        let begin = match &self.range.from {
            Some(edge) => before(edge, &self.keys, &batch)?,
            None => 0,
        };
        // Marks are of some frames only, so the first frames that are read may end before the
        // range.
        if begin == batch.num_rows() {
            return Ok((batch.slice(0, 0), false));
        }
        // Later batches are sorted behind this one, so none begins before the edge.
        self.range.from = None;
        let end = match &self.range.to {
            Some(edge) => before(edge, &self.keys, &batch)?,
            None => batch.num_rows(),
        };
        // The rest of the output is beyond the edge: its frames are not even read.
        let is_last = end < batch.num_rows();
        Ok((batch.slice(begin, end.saturating_sub(begin)), is_last))
    }
}

/// The number of rows of a sorted batch that are before an edge.
fn before(edge: &Edge, keys: &SortKeys, batch: &RecordBatch) -> Result<usize> {
    let rows = batch.num_rows();
    // Few batches have an edge inside.
    if edge.is_after(&keys.of_row(batch, rows - 1)?) {
        return Ok(rows);
    }
    let keys = keys.of(batch)?;
    let mut low = 0;
    let mut high = rows - 1;
    while low < high {
        let middle = low + (high - low) / 2;
        match edge.is_after(keys.row(middle).data()) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::physical_expr::PhysicalSortExpr;
    use datafusion::physical_expr::expressions::col;

    use super::*;

    fn batch(numbers: &[i64]) -> RecordBatch {
        let numbers = Arc::new(Int64Array::from_iter_values(numbers.iter().copied())) as ArrayRef;
        RecordBatch::try_from_iter([("n", numbers)]).unwrap()
    }

    #[test]
    fn an_edge_divides_a_batch_before_or_after_equal_rows() {
        let by = PhysicalSortExpr::new_default(col("n", &batch(&[]).schema()).unwrap());
        let order = LexOrdering::new([by]).unwrap();
        let keys = SortKeys::new(&order, &batch(&[]).schema()).unwrap().unwrap();
        let rows = batch(&[-3, 1, 1, 1, 5, 9]);
        for (number, first, last) in
            [(-9, 0, 0), (-3, 0, 1), (0, 1, 1), (1, 1, 4), (5, 4, 5), (9, 5, 6), (10, 6, 6)]
        {
            let key = keys.of_row(&batch(&[number]), 0).unwrap();
            let edge = |after| Edge { key: key.clone(), after };
            assert_eq!(before(&edge(false), &keys, &rows).unwrap(), first, "{number}");
            assert_eq!(before(&edge(true), &keys, &rows).unwrap(), last, "{number}");
        }
    }
}
