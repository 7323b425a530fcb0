//! The buckets of an exchange by objects: reads and writes whole ranges, and counts the requests.
//!
//! A name is used by one attempt of one task (Lambada 4.4.1: the name has sender and receiver), so
//! an object is written once and never replaced.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use snowmelt_wire::{ObjectsAt, S3Access, TaskProgress, bucket_and_key};

use crate::Error;
use crate::scan::{object_path, open_bucket, with_retries};

/// How long an object is looked for that its writer has reported: a store may show it late.
const LATE: Duration = Duration::from_secs(10);

/// The pause before an object is looked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// An object of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    bucket: String,
    key: Path,
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

/// The object with this number of an attempt. If partitions are not combined, each has objects of
/// its own. Objects are spread over the folders by their sender, or by sender and receiver.
pub(super) fn object(
    at: &ObjectsAt,
    (task, attempt): (u32, u32),
    partition: u32,
    number: u32,
) -> Object {
    let (spread, name) = match at.combined {
        true => (u64::from(task), number.to_string()),
        false => (u64::from(task) + u64::from(partition), format!("{partition}.{number}")),
    };
    let count = at.folders.len().max(1) as u64;
    let folder = at.folders.get((spread % count) as usize).map_or("", String::as_str);
    let (bucket, key) = bucket_and_key(folder).unwrap_or_default();
    let key = object_path(&format!("{key}/{task}.{attempt}/{name}"));
    Object { bucket: bucket.to_owned(), key }
}

/// Requests and bytes of a task's exchanges.
#[derive(Debug, Default)]
struct Requests {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// The opened buckets.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    buckets: BTreeMap<String, Arc<dyn ObjectStore>>,
    anonymous: bool,
    requests: Requests,
}

impl Stores {
    /// Opens the buckets of some outputs with the access of a task. Sends no request.
    ///
    /// # Errors
    /// A bucket to which the task has no access.
    pub(crate) fn open<'o>(
        outputs: impl IntoIterator<Item = &'o ObjectsAt>,
        access: &BTreeMap<String, S3Access>,
    ) -> Result<Self, Error> {
        let (mut buckets, mut anonymous) = (BTreeMap::<String, Arc<dyn ObjectStore>>::new(), false);
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

    /// Buckets that are open already.
    #[cfg(test)]
    pub(super) fn of(buckets: BTreeMap<String, Arc<dyn ObjectStore>>) -> Self {
        Self { buckets, ..Self::default() }
    }

    /// Reads a range of an object with one request.
    pub(super) async fn read(&self, object: &Object, range: Range<u64>) -> Result<Bytes, Error> {
        let (location, anonymous) = (object.to_string(), self.anonymous);
        let failed = |source| Error::Storage { location, source, anonymous };
        let Some(store) = self.buckets.get(&object.bucket) else { return Err(failed(no_access())) };
        let read = until_there(|| with_retries(|| store.get_range(&object.key, range.clone())));
        let bytes = read.await.map_err(failed)?;
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
        let (location, anonymous) = (object.to_string(), self.anonymous);
        let failed = |source| Error::Upload { location, source, anonymous };
        let Some(store) = self.buckets.get(&object.bucket) else { return Err(failed(no_access())) };
        let bytes = payload.content_length() as u64;
        with_retries(|| store.put(&object.key, payload.clone())).await.map_err(failed)?;
        self.requests.writes.fetch_add(1, Ordering::Relaxed);
        self.requests.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The progress with the requests so far.
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

/// Repeats a read for some seconds while the object is not there.
async fn until_there<T, F>(mut read: impl FnMut() -> F) -> object_store::Result<T>
where
    F: Future<Output = object_store::Result<T>>,
{
    let (end, mut pause) = (Instant::now() + LATE, PAUSE);
    loop {
        match read().await {
            Err(object_store::Error::NotFound { .. }) if Instant::now() + pause < end => (),
            result => return result,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(folders: &[&str], combined: bool) -> ObjectsAt {
        ObjectsAt { folders: folders.iter().map(|it| (*it).to_owned()).collect(), combined }
    }

    #[test]
    fn names_have_task_attempt_and_receiver() {
        let name = |combined| object(&at(&["s3://b/x/2"], combined), (7, 1), 5, 0).to_string();
        assert_eq!(name(true), "s3://b/x/2/7.1/0");
        assert_eq!(name(false), "s3://b/x/2/7.1/5.0");
        assert_eq!(object(&at(&["s3://b/2"], true), (0, 0), 0, 3).to_string(), "s3://b/2/0.0/3");
    }

    #[test]
    fn objects_are_spread_over_the_folders() {
        let folders = ["s3://a/1", "s3://b/1", "s3://b/x/1"];
        let folder = |combined, task, partition| {
            object(&at(&folders, combined), (task, 0), partition, 0).to_string()
        };
        for task in 0..6 {
            assert!(folder(true, task, 9).starts_with(folders[task as usize % 3]));
            // The partitions of a task, and the senders of a partition, are spread.
            assert!(folder(false, task, 0).starts_with(folders[task as usize % 3]));
            assert!(folder(false, 0, task).starts_with(folders[task as usize % 3]));
        }
    }

    #[tokio::test]
    async fn an_object_that_appears_late_is_read() {
        let mut missing = 2;
        let read = until_there(|| {
            missing -= 1;
            let found = match missing >= 0 {
                true => Err(object_store::Error::NotFound {
                    path: "x".to_owned(),
                    source: "not yet".into(),
                }),
                false => Ok(5),
            };
            async { found }
        });
        assert_eq!(read.await.unwrap(), 5);
    }
}
