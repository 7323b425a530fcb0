//! Counters of the bytes and requests of a task, and a store that counts the reads of a bucket and
//! checks the versions of its objects.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use snowmelt_wire::ScanCounts;

use super::hedge::{MAX_BYTES, Races};
use super::{Requests, Versions, with_retries};

/// Objects in the answer to one request for a list.
const LIST_PAGE: u64 = 1000;

/// Bytes and requests of a task, or of the planner. Shared by all its stores.
#[derive(Debug, Default)]
pub struct Counters {
    bytes: AtomicU64,
    requests: AtomicU64,
    // Requests to object storage, which cost money.
    store_reads: AtomicU64,
    lists: AtomicU64,
    // Footers that needed no request, because the task was sent them.
    footers_sent: AtomicU64,
    // Requests that were sent a second time.
    hedged: AtomicU64,
    // Requests that were saved and added, because ranges are near each other or long.
    merged: AtomicU64,
    split: AtomicU64,
    // Row groups that are read now, and the most at a time.
    row_groups: AtomicU64,
    most_row_groups: AtomicU64,
}

impl Counters {
    /// Counts one request and its bytes.
    pub(crate) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes and requests so far.
    pub fn read(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
    }

    /// Reads of and lists by object storage so far.
    pub(crate) fn of_store(&self) -> (u64, u64) {
        (self.store_reads.load(Ordering::Relaxed), self.lists.load(Ordering::Relaxed))
    }

    /// How the requests of scans were made so far.
    pub(crate) fn of_scans(&self) -> ScanCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ScanCounts {
            footers_ahead: read(&self.footers_sent),
            row_groups_in_flight: read(&self.most_row_groups),
            merged: read(&self.merged),
            split: read(&self.split),
            hedged: read(&self.hedged),
        }
    }

    /// Counts the requests for some ranges.
    pub(super) fn count_ranges(&self, requests: &Requests) {
        self.merged.fetch_add(requests.merged, Ordering::Relaxed);
        self.split.fetch_add(requests.split, Ordering::Relaxed);
    }

    /// Counts a row group as long as the result lives.
    pub(super) fn row_group(self: &Arc<Self>) -> RowGroupRead {
        let now = self.row_groups.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_row_groups.fetch_max(now, Ordering::Relaxed);
        RowGroupRead(Arc::clone(self))
    }

    pub(super) fn count_footer_sent(&self) {
        self.footers_sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was sent a second time: the store bills both.
    fn count_hedged(&self) {
        self.hedged.fetch_add(1, Ordering::Relaxed);
        self.count_store_read(0);
    }

    fn count_store_read(&self, bytes: u64) {
        self.count(bytes);
        self.store_reads.fetch_add(1, Ordering::Relaxed);
    }
}

/// A row group that is read.
#[derive(Debug)]
pub(super) struct RowGroupRead(Arc<Counters>);

impl Drop for RowGroupRead {
    fn drop(&mut self) {
        self.0.row_groups.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bytes of a request that are few enough to wait for all of them before any is used.
fn short_range(options: &GetOptions) -> Option<u64> {
    match &options.range {
        Some(GetRange::Bounded(range)) if !options.head => {
            Some(range.end.saturating_sub(range.start)).filter(|bytes| *bytes <= MAX_BYTES)
        }
        _ => None,
    }
}

/// An answer with all of its bytes.
async fn whole(answer: impl Future<Output = Result<GetResult>>) -> Result<GetResult> {
    let got = answer.await?;
    let meta = got.meta.clone();
    let range = got.range.clone();
    let attributes = got.attributes.clone();
    let bytes = got.bytes().await?;
    let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
    Ok(GetResult { payload, meta, range, attributes })
}

/// A store that counts reads and lists: each range on the wire is a request.
#[derive(Debug)]
pub struct CountingStore<S> {
    inner: S,
    counters: Arc<Counters>,
    versions: Arc<Versions>,
    races: Races,
    /// True if requests of the store cost money.
    has_price: bool,
}

impl<S> CountingStore<S> {
    /// Counts the reads of `inner`, and checks them against `versions`.
    pub fn new(inner: S, counters: Arc<Counters>, versions: Arc<Versions>) -> Self {
        Self { inner, counters, versions, races: Races::default(), has_price: true }
    }

    /// Marks the store as one whose requests cost nothing.
    pub(crate) fn without_price(self) -> Self {
        Self { has_price: false, ..self }
    }

    fn count(&self, bytes: u64) {
        match self.has_price {
            true => self.counters.count_store_read(bytes),
            false => self.counters.count(bytes),
        }
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
        let send = || with_retries(|| self.inner.get_opts(location, options.clone()));
        let result = match short_range(&options) {
            Some(bytes) => {
                let raced = self.races.run(bytes, || whole(send())).await;
                if raced.twice {
                    self.counters.count_hedged();
                }
                raced.result
            }
            None => send().await,
        };
        let result = result.inspect_err(|error| self.versions.note(location, error));
        // An object that does not exist or has changed is an answer that costs as much.
        let answered =
            |error: &Error| matches!(error, Error::NotFound { .. } | Error::Precondition { .. });
        match &result {
            Ok(got) if !head => self.count(got.range.end - got.range.start),
            Err(error) if !answered(error) => (),
            _ => self.count(0),
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
