//! Reads what one task wrote to one partition from its objects.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use datafusion::common::runtime::SpawnedTask;
use futures::stream::{self, StreamExt, TryStreamExt};
use snowmelt_wire::{Error as WireError, Frame, HEADER_BYTES, Kind};

use super::names::Object;
use super::stores::Stores;
use crate::Error;
use crate::exchange::source::{Frames, OutputSource, batch_bytes};

/// The objects with the ranges of one partition: one for each range.
#[derive(Debug)]
pub(in crate::exchange) struct ObjectSource {
    stores: Arc<Stores>,
    objects: Vec<Object>,
}

impl ObjectSource {
    pub(in crate::exchange) fn new(stores: Arc<Stores>, objects: Vec<Object>) -> Self {
        Self { stores, objects }
    }
}

impl OutputSource for ObjectSource {
    /// Begins to read the first range at once: a reader has several sources open. A range is at most
    /// as large as an object, which fits into the buffer of its writer.
    fn frames(&self, ranges: Vec<(u64, u64)>) -> Frames {
        let mut reads = self.objects.clone().into_iter().zip(ranges);
        let stores = Arc::clone(&self.stores);
        let first = reads.next().map(|read| spawn(&stores, read));
        let rest = reads.map(move |read| spawn(&stores, read));
        let reads = first.into_iter().chain(rest);
        stream::iter(reads).then(joined).map_ok(frames_of).try_flatten().boxed()
    }
}

type ObjectRead = SpawnedTask<Result<Bytes, Error>>;

fn spawn(stores: &Arc<Stores>, (object, (offset, length)): (Object, (u64, u64))) -> ObjectRead {
    let stores = Arc::clone(stores);
    SpawnedTask::spawn(async move { stores.read(&object, offset..offset + length).await })
}

async fn joined(read: ObjectRead) -> Result<Bytes, Error> {
    let ended = read.join().await;
    ended.unwrap_or_else(|ended| Err(Error::Exchange(std::io::Error::other(ended))))
}

/// The frames of a range, which share its bytes.
fn frames_of(range: Bytes) -> impl futures::Stream<Item = Result<Frame, Error>> {
    stream::iter(std::iter::successors(first(range), |last| match last {
        Ok((_, rest)) => first(rest.clone()),
        Err(_) => None,
    }))
    .map(|frame| frame.map(|(frame, _)| frame))
}

/// The first frame and the rest; `None` at the end.
fn first(mut range: Bytes) -> Option<Result<(Frame, Bytes), Error>> {
    (!range.is_empty()).then(|| {
        let header = range.first_chunk::<HEADER_BYTES>().copied().ok_or(WireError::Closed)?;
        let payload_bytes = batch_bytes(header, range.len() as u64)?;
        range.advance(HEADER_BYTES);
        let payload = range.split_to(payload_bytes);
        Ok((Frame::new(Kind::Batch, payload), range))
    })
}
