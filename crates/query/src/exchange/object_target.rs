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

use super::stores::{Object, Stores, object};
use super::target::{Piece, Place, Target};
use crate::Error;

/// Objects of a task that are uploaded at the same time.
const UPLOADS: usize = 16;

/// The objects of one attempt of a task.
pub(crate) struct ObjectTarget {
    stores: Arc<Stores>,
    at: ObjectsAt,
    /// Task and attempt.
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
        let (next, uploads) = (AtomicU32::new(0), Mutex::default());
        Self { stores, at, writer, next, budget, uploads, slots: Arc::new(Semaphore::new(UPLOADS)) }
    }

    fn upload(&self, object: Object, pieces: impl IntoIterator<Item = Vec<u8>>) {
        let payload: PutPayload = pieces.into_iter().map(Bytes::from).collect();
        let bytes = payload.content_length();
        let (stores, slots) = (Arc::clone(&self.stores), Arc::clone(&self.slots));
        let ended = SpawnedTask::spawn(async move {
            let _slot = slots.acquire().await;
            stores.write(&object, payload).await
        });
        self.lock().push_back(Upload { bytes, ended });
    }

    /// The oldest upload, if it is to be waited for.
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

impl Target for ObjectTarget {
    fn writes_all(&self) -> bool {
        true
    }

    fn write(&self, pieces: Vec<Piece>) -> Result<Vec<Place>, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = |offset| Place { object: Some(number), offset };
        let name = |partition| object(&self.at, self.writer, partition, number);
        if !self.at.combined {
            let places = pieces.iter().map(|_| place(0)).collect();
            for Piece { partition, frames } in pieces {
                self.upload(name(partition), [frames]);
            }
            return Ok(places);
        }
        let mut end = 0;
        let mut take = |piece: &Piece| {
            let offset = end;
            end += piece.frames.len() as u64;
            place(offset)
        };
        let places: Vec<Place> = pieces.iter().map(&mut take).collect();
        if !places.is_empty() {
            self.upload(name(0), pieces.into_iter().map(|piece| piece.frames));
        }
        Ok(places)
    }

    fn settle(&self, complete: bool) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            while let Some(upload) = self.due(complete) {
                let ended = upload.ended.join().await;
                ended.unwrap_or_else(|ended| Err(Error::Exchange(std::io::Error::other(ended))))?;
            }
            Ok(())
        }
        .boxed()
    }
}
