//! Sorts by several columns.
//!
//! DataFusion sorts each batch and merges all of them: a tree over hundreds of streams, with a
//! comparison of whole keys at each of its levels. Here the keys are encoded as bytes with the
//! order of the rows, and all rows are sorted together by a short form of their keys (`short_keys`);
//! whole keys are compared only if those are equal.
//!
//! The first rows of a sort are found in the same way if they are many. DataFusion keeps them in a
//! heap, which is better for few and many times slower for a million.
//!
//! If the rows do not fit into memory and the task has scratch, DataFusion sorts them there, also if
//! only the first ones are needed.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::row::Rows;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::short_keys::{KeyShape, ShortKey};
use super::spilled_sort;
use crate::operators::{Batches, Execution};
use crate::sort_keys::SortKeys;

/// The number of first rows from which on sorting all rows is faster than a heap of the first ones.
const MANY: usize = 20_000;

/// The factor of collected rows to needed rows at which the rows that are not needed are dropped.
const SLACK: usize = 4;

/// True for a sort of all rows, or of many first ones: it may need scratch.
pub(crate) fn sorts_many(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<SortExec>()
        .is_some_and(|sort| sort.fetch().is_none_or(|fetch| fetch >= MANY))
}

/// The execution for a sort of all rows by more than one column, or of the first rows if they are
/// many; `None` for other nodes.
pub(in crate::operators) fn execution_for(
    node: &Arc<dyn ExecutionPlan>,
) -> Result<Option<Arc<dyn Execution>>> {
    let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(None) };
    let input = sort.input();
    let order = sort.expr();
    // By one column, DataFusion sorts all rows as fast.
    let is_faster = sort.fetch().map_or(order.len() > 1, |fetch| fetch >= MANY);
    if !is_faster {
        return Ok(None);
    }
    if input.properties().equivalence_properties().ordering_satisfy(order.clone())? {
        return Ok(None);
    }
    let Some(keys) = SortKeys::new(order, &input.schema())? else { return Ok(None) };
    let keys = Arc::new(keys);
    let order = order.clone();
    Ok(Some(Arc::new(KeySort { keys, order, fetch: sort.fetch() })))
}

#[derive(Debug)]
struct KeySort {
    keys: Arc<SortKeys>,
    order: LexOrdering,
    /// The number of sorted rows that are needed; `None` for all.
    fetch: Option<usize>,
}

impl Execution for KeySort {
    fn run(
        &self,
        mut input: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
        metrics: BaselineMetrics,
    ) -> Result<Batches> {
        let spills = context.runtime_env().disk_manager.tmp_files_enabled();
        let memory = MemoryConsumer::new("SortExec").with_can_spill(spills);
        let mut rows = Unsorted {
            sort_keys: Arc::clone(&self.keys),
            fetch: self.fetch.unwrap_or(usize::MAX),
            spills,
            batch_rows: context.session_config().batch_size(),
            batches: Vec::new(),
            keys: Vec::new(),
            reservation: memory.register(context.memory_pool()),
        };
        let order = self.order.clone();
        let context = Arc::clone(context);
        let batch_rows = context.session_config().batch_size();
        let sorted = stream::once(async move {
            while let Some(batch) = input.next().await {
                let timer = metrics.elapsed_compute().timer();
                let batch = batch?;
                let pushed = rows.push(batch.clone());
                timer.done();
                match pushed {
                    Err(error) if spills && spilled_sort::is_exhausted(&error) => {
                        let fetch = rows.fetch;
                        let read = rows.into_batches(batch);
                        let sorted = spilled_sort::sorted(&order, read, input, context)?;
                        return Ok(first(sorted, fetch, metrics).boxed());
                    }
                    pushed => pushed?,
                }
            }
            drop(input);
            let timer = metrics.elapsed_compute().timer();
            let sorted = rows.sort();
            timer.done();
            Ok::<_, DataFusionError>(sorted.stream(batch_rows, metrics).boxed())
        });
        Ok(sorted.try_flatten().boxed())
    }
}

/// The first rows of a stream, which are counted.
fn first(
    sorted: SendableRecordBatchStream,
    fetch: usize,
    metrics: BaselineMetrics,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    stream::try_unfold((sorted, fetch, metrics), |(mut sorted, left, metrics)| async move {
        if left == 0 {
            return Ok::<_, DataFusionError>(None);
        }
        let Some(batch) = sorted.next().await.transpose()? else { return Ok(None) };
        let batch = batch.slice(0, batch.num_rows().min(left));
        metrics.record_output(batch.num_rows());
        let left = left - batch.num_rows();
        Ok(Some((batch, (sorted, left, metrics))))
    })
}

/// Rows and their keys, batch by batch.
struct Unsorted {
    sort_keys: Arc<SortKeys>,
    fetch: usize,
    spills: bool,
    batch_rows: usize,
    batches: Vec<RecordBatch>,
    keys: Vec<Rows>,
    reservation: MemoryReservation,
}

/// The position of a row, and the short form of its key.
#[derive(Clone, Copy)]
struct SortEntry {
    key: ShortKey,
    batch: u32,
    row: u32,
}

impl Unsorted {
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let keys = self.sort_keys.of(&batch)?;
        let bytes = bytes(&batch, &keys);
        let held: usize = self.keys.iter().map(Rows::num_rows).sum();
        if held > self.fetch.saturating_mul(SLACK) {
            self.drop_last(held)?;
            self.reservation.try_grow(bytes)?;
        } else if let Err(refused) = self.reservation.try_grow(bytes) {
            // All would be sorted again and again to drop a few.
            if self.spills && held < self.fetch.saturating_mul(2) {
                return Err(refused);
            }
            self.drop_last(held)?;
            self.reservation.try_grow(bytes)?;
        }
        self.batches.push(batch);
        self.keys.push(keys);
        Ok(())
    }

    /// Returns the rows and the further ones of `last`, without their keys. Their memory is not
    /// reserved any more.
    fn into_batches(mut self, last: RecordBatch) -> Vec<RecordBatch> {
        self.batches.push(last);
        self.batches
    }

    /// Drops the rows that are not among the first.
    fn drop_last(&mut self, held: usize) -> Result<()> {
        if held <= self.fetch {
            return Ok(());
        }
        let mut entries = entries(&self.keys);
        entries.truncate(self.fetch);
        let mut batches = Vec::new();
        let mut keys = Vec::new();
        let mut needed = 0;
        // Not all in one: what does not fit after all is sorted batch by batch.
        for rows in entries.chunks(self.batch_rows) {
            let batch = interleaved(&self.batches, rows)?;
            let its_keys = self.sort_keys.of(&batch)?;
            needed += bytes(&batch, &its_keys);
            batches.push(batch);
            keys.push(its_keys);
        }
        self.reservation.resize(needed);
        (self.batches, self.keys) = (batches, keys);
        Ok(())
    }

    fn sort(self) -> Sorted {
        let Self { batches, keys, fetch, reservation, .. } = self;
        let mut entries = entries(&keys);
        entries.truncate(fetch);
        reservation.shrink(keys.iter().map(Rows::size).sum());
        Sorted { batches, entries, done: 0, _reservation: reservation }
    }
}

/// Memory of rows with their keys, and of their entries when they are sorted.
fn bytes(batch: &RecordBatch, keys: &Rows) -> usize {
    get_record_batch_memory_size(batch) + keys.size() + batch.num_rows() * size_of::<SortEntry>()
}

/// The rows in their order.
fn entries(keys: &[Rows]) -> Vec<SortEntry> {
    let shape = KeyShape::of(keys);
    let mut entries = Vec::with_capacity(keys.iter().map(Rows::num_rows).sum());
    for (batch, keys) in (0..).zip(keys) {
        let rows = (0..).zip(keys);
        entries.extend(rows.map(|(row, key)| SortEntry {
            key: shape.short(key.data()),
            batch,
            row,
        }));
    }
    if shape.is_whole() {
        entries.sort_unstable_by_key(|entry| entry.key);
    } else {
        let whole = |entry: &SortEntry| keys[entry.batch as usize].row(entry.row as usize);
        entries.sort_unstable_by(|a: &SortEntry, b: &SortEntry| {
            a.key.cmp(&b.key).then_with(|| whole(a).cmp(&whole(b)))
        });
    }
    entries
}

impl SortEntry {
    fn index(&self) -> (usize, usize) {
        (self.batch as usize, self.row as usize)
    }
}

/// Sorted rows.
struct Sorted {
    batches: Vec<RecordBatch>,
    entries: Vec<SortEntry>,
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
        let batch = interleaved(&self.batches, rows)?;
        self.done = end;
        Ok(Some(batch))
    }
}

/// A batch of some rows.
fn interleaved(batches: &[RecordBatch], rows: &[SortEntry]) -> Result<RecordBatch> {
    let indices: Vec<(usize, usize)> = rows.iter().map(SortEntry::index).collect();
    let batches: Vec<&RecordBatch> = batches.iter().collect();
    Ok(interleave_record_batch(&batches, &indices)?)
}
