//! The buckets of an exchange by objects: reads and writes whole ranges, and counts the requests.
//!
//! An object that is gone by the time it is read is the lost output of its task.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use snowmelt_wire::{ObjectsAt, S3Access, TaskProgress};

use super::missing_objects::{LATE, MissingObjects};
use super::names::Object;
use crate::Error;
use crate::scan::{open_bucket, with_retries};

/// Counters of the requests and bytes of a task's exchanges.
#[derive(Debug, Default)]
struct RequestCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// The opened buckets.
#[derive(Debug)]
pub(crate) struct Stores {
    buckets: BTreeMap<String, Arc<dyn ObjectStore>>,
    anonymous: bool,
    requests: RequestCounters,
    missing: MissingObjects,
}

impl Default for Stores {
    fn default() -> Self {
        let buckets = BTreeMap::new();
        let requests = RequestCounters::default();
        Self { buckets, anonymous: false, requests, missing: MissingObjects::new(LATE) }
    }
}

impl Stores {
    /// Opens the buckets of some outputs with the access of a task. Sends no request.
    ///
    /// # Errors
    /// The task has no access to a bucket.
    pub(crate) fn open<'o>(
        outputs: impl IntoIterator<Item = &'o ObjectsAt>,
        access: &BTreeMap<String, S3Access>,
    ) -> Result<Self, Error> {
        let mut buckets = BTreeMap::<String, Arc<dyn ObjectStore>>::new();
        let mut anonymous = false;
        for bucket in outputs.into_iter().flat_map(ObjectsAt::buckets) {
            if buckets.contains_key(bucket) {
                continue;
            }
            let access = access.get(bucket).cloned().unwrap_or_default();
            anonymous = !access.settings.contains_key("AWS_ACCESS_KEY_ID");
            let store = open_bucket(bucket, &access).map_err(|source| Error::Storage {
                location: format!("s3://{bucket}"),
                source,
                anonymous,
            })?;
            buckets.insert(bucket.to_owned(), Arc::new(store));
        }
        Ok(Self { buckets, anonymous, ..Self::default() })
    }

    /// Creates the stores from buckets that are open already.
    #[cfg(test)]
    pub(super) fn of(buckets: BTreeMap<String, Arc<dyn ObjectStore>>) -> Self {
        Self { buckets, ..Self::default() }
    }

    /// Reads a range of an object with one request.
    pub(super) async fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes, Error> {
        let location = object.to_string();
        let anonymous = self.anonymous;
        let failed = |source| Error::Storage { location, source, anonymous };
        let Some(store) = self.buckets.get(object.bucket()) else {
            return Err(failed(no_access()));
        };
        let read = || with_retries(|| store.get_range(object.key(), range.clone()));
        let bytes = match self.missing.until_there(object, read).await {
            Err(object_store::Error::NotFound { .. }) => {
                let task = object.task();
                let object = object.to_string();
                return Err(Error::ObjectLost { object, task });
            }
            read => read.map_err(failed)?,
        };
        self.requests.reads.fetch_add(1, Ordering::Relaxed);
        self.requests.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        match bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes),
            false => {
                let why = format!("{object} is shorter than its writer reported");
                Err(Error::Exchange(std::io::Error::other(why)))
            }
        }
    }

    /// Writes an object with one request.
    pub(super) async fn write(&self, object: &Object, payload: PutPayload) -> Result<(), Error> {
        let location = object.to_string();
        let anonymous = self.anonymous;
        let failed = |source| Error::Upload { location, source, anonymous };
        let Some(store) = self.buckets.get(object.bucket()) else {
            return Err(failed(no_access()));
        };
        let bytes = payload.content_length() as u64;
        with_retries(|| store.put(object.key(), payload.clone())).await.map_err(failed)?;
        self.requests.writes.fetch_add(1, Ordering::Relaxed);
        self.requests.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the tasks whose objects were to be read and are gone.
    pub(crate) fn lost(&self) -> Vec<u32> {
        self.missing.lost()
    }

    /// Adds the requests so far to the progress.
    pub(crate) fn counted(&self, progress: TaskProgress) -> TaskProgress {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        TaskProgress {
            exchange_reads: count(&self.requests.reads),
            exchange_writes: count(&self.requests.writes),
            exchange_bytes_read: count(&self.requests.bytes_read),
            exchange_bytes_written: count(&self.requests.bytes_written),
            ..progress
        }
    }
}

fn no_access() -> object_store::Error {
    let source = "the task has no access to the bucket".into();
    object_store::Error::Generic { store: "S3", source }
}
