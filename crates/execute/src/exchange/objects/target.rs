//! Writes the output of a task to objects, in the background.
//!
//! With write combining a buffer becomes one object; otherwise each partition in it does. An output
//! that is larger than the buffer has several objects: a multipart upload would need more requests
//! for the same bytes, and leaves parts behind if its worker dies.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::PutPayload;
use snowmelt_wire::ObjectsAt;
use tokio::sync::Semaphore;

use super::names::{Object, object};
use super::stores::Stores;
use crate::Error;
use crate::exchange::target::{OutputPiece, OutputTarget, PiecePlace};

/// The most objects of a task that are uploaded at the same time.
const UPLOADS: usize = 16;

/// The objects of one attempt of a task.
pub(crate) struct ObjectTarget {
    stores: Arc<Stores>,
    at: ObjectsAt,
    /// Numbers of the task and the attempt that write.
    writer: (u32, u32),
    /// The number of the next object.
    next: AtomicU32,
    /// Bytes that may be on their way while more rows are computed.
    budget: usize,
    uploads: Mutex<VecDeque<Upload>>,
    slots: Arc<Semaphore>,
}

struct Upload {
    bytes: usize,
    ended: SpawnedTask<Result<(), Error>>,
}

impl ObjectTarget {
    pub(crate) fn new(stores: Arc<Stores>, at: ObjectsAt, writer: (u32, u32), budget: u64) -> Self {
        let budget = usize::try_from(budget).unwrap_or(usize::MAX);
        let next = AtomicU32::new(0);
        let uploads = Mutex::default();
        Self { stores, at, writer, next, budget, uploads, slots: Arc::new(Semaphore::new(UPLOADS)) }
    }

    fn upload(&self, object: Object, pieces: impl IntoIterator<Item = Vec<u8>>) {
        let payload: PutPayload = pieces.into_iter().map(Bytes::from).collect();
        let bytes = payload.content_length();
        let stores = Arc::clone(&self.stores);
        let slots = Arc::clone(&self.slots);
        let ended = SpawnedTask::spawn(async move {
            // In the task, so that the caller computes more rows while all slots are taken.
            let _slot = slots.acquire().await;
            stores.write(&object, payload).await
        });
        self.lock().push_back(Upload { bytes, ended });
    }

    /// Returns the oldest upload, if it is to be waited for.
    fn due(&self, complete: bool) -> Option<Upload> {
        let mut uploads = self.lock();
        let bytes: usize = uploads.iter().map(|upload| upload.bytes).sum();
        match complete || bytes > self.budget {
            true => uploads.pop_front(),
            false => None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Upload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputTarget for ObjectTarget {
    fn writes_all(&self) -> bool {
        true
    }

    fn write(&self, pieces: Vec<OutputPiece>) -> Result<Vec<PiecePlace>, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = |offset| PiecePlace { object: Some(number), offset };
        let (task, attempt) = self.writer;
        let name = |partition| object(&self.at, task, attempt, partition, number);
        if !self.at.combined {
            let places = pieces.iter().map(|_| place(0)).collect();
            for OutputPiece { partition, frames } in pieces {
                self.upload(name(partition), [frames]);
            }
            return Ok(places);
        }
        let mut end = 0;
        let mut take = |piece: &OutputPiece| {
            let offset = end;
            end += piece.frames.len() as u64;
            place(offset)
        };
        let places: Vec<PiecePlace> = pieces.iter().map(&mut take).collect();
        // An output without rows has no object, which costs no request.
        if !places.is_empty() {
            self.upload(name(0), pieces.into_iter().map(|piece| piece.frames));
        }
        Ok(places)
    }

    fn settle(&self, complete: bool) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            // The oldest first, which is the most likely to have ended.
            while let Some(upload) = self.due(complete) {
                let ended = upload.ended.join().await;
                ended.unwrap_or_else(|ended| Err(Error::Exchange(std::io::Error::other(ended))))?;
            }
            Ok(())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::Partitioning;
    use futures::TryStreamExt;
    use object_store::ObjectStore;
    use object_store::memory::InMemory;
    use snowmelt_wire::{TaskProgress, TaskRead};

    use super::*;
    use crate::exchange::decoder::FrameReader;
    use crate::exchange::{ExchangeWriter, Inputs, LevelOfTask};

    fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
        let numbers = Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef;
        RecordBatch::try_from_iter([("n", numbers)]).unwrap()
    }

    /// Writes 10,000 rows into 4 partitions; gives the number of objects and of reads, and the rows
    /// that were read back.
    async fn written(combined: bool, budget: u64) -> (usize, u64, Vec<i64>) {
        let memory = Arc::new(InMemory::new());
        let buckets = [("b".to_owned(), Arc::clone(&memory) as Arc<dyn ObjectStore>)];
        let stores = Arc::new(Stores::of(buckets.into()));
        let at = ObjectsAt { folders: vec!["s3://b/3".to_owned()], combined };
        let target = ObjectTarget::new(Arc::clone(&stores), at.clone(), (8, 1), budget);
        let writer = ExchangeWriter::new(Box::new(target), 512, budget);
        let by_key = Partitioning::Hash(vec![col("n", &batch(0..1).schema()).unwrap()], 4);
        let level = LevelOfTask { unit: 1, own: 0 };
        let mut splitter = ExchangeWriter::splitter(&by_key, 0, level).unwrap();
        for start in (0..10_000).step_by(1_000) {
            splitter.split(batch(start..start + 1_000), &writer).unwrap();
            writer.settle().await.unwrap();
        }
        let partitions = writer.finish().await.unwrap();
        let objects: Vec<_> = memory.list(None).try_collect().await.unwrap();
        let task = 8;
        let attempt = 1;
        let range = None;
        let at = Some(at);
        let shared = false;
        let read = TaskRead { stage: 3, task, attempt, partitions, objects: at, shared, range };
        let inputs = Inputs::new(&[read], &[].into(), &stores, 10_000).unwrap();
        let mut reader = inputs.read(3, &[0, 1, 2, 3], batch(0..1).schema());
        let mut rows = Vec::new();
        while let Some(frame) = reader.frame().await.unwrap() {
            let batch = reader.decode(&frame).unwrap().unwrap();
            let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
            rows.extend(numbers.values().iter().copied());
        }
        rows.sort_unstable();
        let reads = stores.counted(TaskProgress::default()).exchange_reads;
        (objects.len(), reads, rows)
    }

    #[tokio::test]
    async fn an_output_that_fits_is_one_object_or_one_for_each_partition() {
        let all: Vec<i64> = (0..10_000).collect();
        assert_eq!(written(true, 64 << 20).await, (1, 4, all.clone()));
        assert_eq!(written(false, 64 << 20).await, (4, 4, all));
    }

    #[tokio::test]
    async fn a_larger_output_is_several_objects() {
        let all: Vec<i64> = (0..10_000).collect();
        let (objects, reads, rows) = written(true, 20_000).await;
        assert!((2..20).contains(&objects) && reads > 4, "{objects} {reads}");
        assert_eq!(rows, all);
        let (more, as_many, rows) = written(false, 20_000).await;
        assert!(more as u64 == as_many && more > objects, "{more} {as_many}");
        assert_eq!(rows, all);
    }
}
