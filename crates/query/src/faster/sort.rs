//! Sorts by several columns.
//!
//! DataFusion sorts each batch and merges all of them: a tree over hundreds of streams, with a
//! comparison of whole keys at each of its levels. Here the keys are encoded as bytes with the
//! order of the rows, and all rows are sorted together by the eight bytes after the common prefix
//! of all keys; the rest of a key is compared only if those are equal.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::row::{Row, RowConverter, Rows, SortField};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::{Batches, Execution};

/// The execution for a sort of all rows by more than one column; `None` for other nodes.
pub(super) fn execution_for(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn Execution>>> {
    let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(None) };
    let (input, order) = (sort.input(), sort.expr());
    if sort.fetch().is_some() || order.len() < 2 {
        return Ok(None);
    }
    if input.properties().equivalence_properties().ordering_satisfy(order.clone())? {
        return Ok(None);
    }
    let schema = input.schema();
    let field = |key: &PhysicalSortExpr| {
        Ok(SortField::new_with_options(key.expr.data_type(&schema)?, key.options))
    };
    let fields = order.iter().map(field).collect::<Result<Vec<_>>>()?;
    match RowConverter::supports_fields(&fields) {
        true => Ok(Some(Arc::new(KeySort { fields, order: order.clone() }))),
        false => Ok(None),
    }
}

#[derive(Debug)]
struct KeySort {
    fields: Vec<SortField>,
    order: LexOrdering,
}

impl Execution for KeySort {
    fn run(
        &self,
        mut input: SendableRecordBatchStream,
        context: &TaskContext,
        metrics: BaselineMetrics,
    ) -> Result<Batches> {
        let mut rows = Unsorted {
            converter: RowConverter::new(self.fields.clone())?,
            order: self.order.clone(),
            batches: Vec::new(),
            keys: Vec::new(),
            reservation: MemoryConsumer::new("SortExec").register(context.memory_pool()),
        };
        let batch_rows = context.session_config().batch_size();
        let sorted = stream::once(async move {
            while let Some(batch) = input.next().await {
                let _timer = metrics.elapsed_compute().timer();
                rows.push(batch?)?;
            }
            drop(input);
            let timer = metrics.elapsed_compute().timer();
            let sorted = rows.sort();
            timer.done();
            Ok::<_, DataFusionError>(sorted.stream(batch_rows, metrics))
        });
        Ok(sorted.try_flatten().boxed())
    }
}

/// Rows and their keys, batch by batch.
struct Unsorted {
    converter: RowConverter,
    order: LexOrdering,
    batches: Vec<RecordBatch>,
    keys: Vec<Rows>,
    reservation: MemoryReservation,
}

/// The position of a row, and the first bytes of its key after the common prefix.
#[derive(Clone, Copy)]
struct Entry {
    prefix: u64,
    batch: u32,
    row: u32,
}

impl Unsorted {
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        let column = |key: &PhysicalSortExpr| key.expr.evaluate(&batch)?.into_array(rows);
        let columns = self.order.iter().map(column).collect::<Result<Vec<_>>>()?;
        let keys = self.converter.convert_columns(&columns)?;
        let entries = rows * size_of::<Entry>();
        let bytes = get_record_batch_memory_size(&batch) + keys.size() + entries;
        self.reservation.try_grow(bytes)?;
        self.batches.push(batch);
        self.keys.push(keys);
        Ok(())
    }

    fn sort(self) -> Sorted {
        let Self { batches, keys, reservation, .. } = self;
        let shared = common_prefix_length(&keys);
        let mut entries = Vec::with_capacity(keys.iter().map(Rows::num_rows).sum());
        for (batch, keys) in (0..).zip(&keys) {
            let entry = |(row, key): (u32, Row<'_>)| {
                let prefix = key_prefix(&key.data()[shared..]);
                Entry { prefix, batch, row }
            };
            entries.extend((0..).zip(keys).map(entry));
        }
        let key = |entry: &Entry| keys[entry.batch as usize].row(entry.row as usize);
        entries.sort_unstable_by(|a: &Entry, b: &Entry| {
            a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(&key(b)))
        });
        reservation.shrink(keys.iter().map(Rows::size).sum());
        Sorted { batches, entries, done: 0, _reservation: reservation }
    }
}

/// The length of the common prefix of all keys.
fn common_prefix_length(keys: &[Rows]) -> usize {
    let mut all = keys.iter().flatten();
    let Some(first) = all.next() else { return 0 };
    let mut shared = first.data();
    for key in all {
        let same = shared.iter().zip(key.data()).take_while(|(a, b)| a == b).count();
        shared = &shared[..same];
    }
    shared.len()
}

/// The first eight bytes as a number with the same order; missing bytes are zero.
fn key_prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(bytes.len());
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

/// Sorted rows.
struct Sorted {
    batches: Vec<RecordBatch>,
    entries: Vec<Entry>,
    done: usize,
    _reservation: MemoryReservation,
}

impl Sorted {
    fn stream(
        self,
        batch_rows: usize,
        metrics: BaselineMetrics,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send {
        stream::try_unfold((self, metrics), move |(mut rows, metrics)| async move {
            let timer = metrics.elapsed_compute().timer();
            let Some(batch) = rows.next(batch_rows)? else {
                return Ok::<_, DataFusionError>(None);
            };
            timer.done();
            metrics.record_output(batch.num_rows());
            Ok(Some((batch, (rows, metrics))))
        })
    }

    fn next(&mut self, batch_rows: usize) -> Result<Option<RecordBatch>> {
        let end = self.entries.len().min(self.done + batch_rows);
        let rows = &self.entries[self.done..end];
        if rows.is_empty() {
            return Ok(None);
        }
        let indices: Vec<(usize, usize)> =
            rows.iter().map(|entry| (entry.batch as usize, entry.row as usize)).collect();
        self.done = end;
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        Ok(Some(interleave_record_batch(&batches, &indices)?))
    }
}
