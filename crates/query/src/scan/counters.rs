//! Counters of the bytes and requests of a task, and a store that counts the reads of a bucket and
//! checks the versions of its objects.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::{Versions, with_retries};

/// Objects in the answer to one request for a list.
const LIST_PAGE: u64 = 1000;

/// Bytes and requests of a task, or of the planner. Shared by all its stores.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    bytes: AtomicU64,
    requests: AtomicU64,
    // Requests to object storage, which cost money.
    store_reads: AtomicU64,
    lists: AtomicU64,
}

impl Counters {
    /// Counts one request and its bytes.
    pub(crate) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes and requests so far.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
    }

    /// Reads of and lists by object storage so far.
    pub(crate) fn of_store(&self) -> (u64, u64) {
        (self.store_reads.load(Ordering::Relaxed), self.lists.load(Ordering::Relaxed))
    }

    fn count_store_read(&self, bytes: u64) {
        self.count(bytes);
        self.store_reads.fetch_add(1, Ordering::Relaxed);
    }
}

/// A store that counts reads and lists: each range on the wire is a request.
#[derive(Debug)]
pub(crate) struct CountingStore<S> {
    inner: S,
    counters: Arc<Counters>,
    versions: Arc<Versions>,
}

impl<S> CountingStore<S> {
    /// Counts the reads of `inner`, and checks them against `versions`.
    pub(crate) fn new(inner: S, counters: Arc<Counters>, versions: Arc<Versions>) -> Self {
        Self { inner, counters, versions }
    }
}

impl<S: ObjectStore> fmt::Display for CountingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for CountingStore<S> {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        let options = self.versions.condition(location, options);
        let result = with_retries(|| self.inner.get_opts(location, options.clone())).await;
        let result = result.inspect_err(|error| self.versions.note(location, error));
        // An object that does not exist or has changed is an answer that costs as much.
        let answered =
            |error: &Error| matches!(error, Error::NotFound { .. } | Error::Precondition { .. });
        match &result {
            Ok(got) if !head => self.counters.count_store_read(got.range.end - got.range.start),
            Err(error) if !answered(error) => (),
            _ => self.counters.count_store_read(0),
        }
        result
    }

    // `get_ranges` is the default: it merges near ranges and calls `get_opts` concurrently.

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let counters = Arc::clone(&self.counters);
        counters.lists.fetch_add(1, Ordering::Relaxed);
        let listed = self.inner.list(prefix).enumerate();
        let count = move |(index, meta): (usize, Result<ObjectMeta>)| {
            if index > 0 && (index as u64).is_multiple_of(LIST_PAGE) {
                counters.lists.fetch_add(1, Ordering::Relaxed);
            }
            meta
        };
        listed.map(count).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, path: &Path, data: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, data, how).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, how).await
    }
}
