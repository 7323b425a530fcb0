//! A server of files as a store that can only be read.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use reqwest::header::{HeaderName, RANGE};
use reqwest::{Method, Response, StatusCode};
use snowmelt_wire::HttpSource;
use tokio::sync::Mutex;
use url::Url;

use super::answer::{self, CachedBytes, check_encoding, check_status};
use super::request::SourceClient;
use super::version::{FileVersion, length};
use crate::error::fault::http::HttpFault;
use crate::scan::paths::path_and_query;

/// How often a request is repeated whose answer was not whole, and the first pause before.
const MAX_RETRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes of a request: a longer range is several, one after the other.
const STEP: u64 = 8 << 20;

/// A server of files. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HttpStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Url,
    requests: SourceClient,
    /// The files of a server that sends no ranges. A file is locked while it is read, so that it is
    /// asked for once; other files are not locked meanwhile.
    whole: std::sync::Mutex<HashMap<Path, WholeFileSlot>>,
    /// The number of bytes that files of this server keep in memory.
    kept: CachedBytes,
}

type WholeFileSlot = Arc<Mutex<Option<WholeFile>>>;

/// A file of a server that sends no ranges.
#[derive(Debug)]
struct WholeFile {
    bytes: Bytes,
    version: FileVersion,
}

impl WholeFile {
    fn part(
        &self,
        range: &Range<u64>,
        expected: Option<&FileVersion>,
    ) -> Result<(Bytes, FileVersion), HttpFault> {
        if expected.is_some_and(|expected| !expected.may_be(&self.version)) {
            return Err(HttpFault::Changed);
        }
        let end = range.end.min(self.bytes.len() as u64) as usize;
        let start = (range.start as usize).min(end);
        Ok((self.bytes.slice(start..end), self.version.clone()))
    }
}

impl HttpStore {
    /// The server of a URL without a path, such as `https://data.example.org`. Sends no request.
    pub(crate) fn open(origin: &str, sources: &[HttpSource]) -> Result<Self> {
        let fault = |fault: HttpFault| fault.of_file(origin);
        let url =
            Url::parse(origin).map_err(|error| fault(HttpFault::Answer(error.to_string())))?;
        let requests = SourceClient::new(sources).map_err(fault)?;
        let (whole, kept) = Default::default();
        Ok(Self(Arc::new(Inner { origin: url, requests, whole, kept })))
    }

    /// Repeats a request whose answer is not whole.
    async fn repeated<T, F>(&self, path: &Path, request: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, HttpFault>>,
    {
        let mut pause = PAUSE;
        for _ in 0..MAX_RETRIES {
            match request().await {
                Err(fault) if fault.is_transient() => tokio::time::sleep(pause).await,
                result => return result.map_err(|fault| fault.of_file(path_and_query(path).0)),
            }
            pause *= 2;
        }
        request().await.map_err(|fault| fault.of_file(path_and_query(path).0))
    }

    fn url(&self, path: &Path) -> Url {
        let mut url = self.0.origin.clone();
        let (path, query) = path_and_query(path);
        url.set_path(&format!("/{path}"));
        url.set_query(query.as_deref());
        url
    }

    /// The size and the version of a file.
    async fn version(&self, path: &Path) -> Result<FileVersion, HttpFault> {
        let url = self.url(path);
        let answer = self.0.requests.send(Method::HEAD, &url, &[]).await?;
        // Not all servers answer HEAD, or say a length there.
        if answer.status().as_u16() == 200 {
            check_encoding(answer.headers(), path.as_ref())?;
            // Some servers say a length of 0 where they do not know it.
            if let Some(size) = length(answer.headers()).filter(|size| *size > 0) {
                return Ok(FileVersion::of(answer.headers(), size));
            }
        } else if !matches!(answer.status().as_u16(), 400 | 403 | 405 | 501) {
            check_status(answer.status())?;
        }
        let first = [(RANGE, "bytes=0-0".to_owned())];
        let mut answer = self.0.requests.send(Method::GET, &url, &first).await?;
        if answer.status().as_u16() == 416 {
            // An empty file has no first byte; but only the file itself tells that it is empty.
            answer = self.0.requests.send(Method::GET, &url, &[]).await?;
        }
        Ok(self.answered(path, answer, &(0..1), None).await?.1)
    }

    /// The place of a file of a server that sends no ranges.
    fn slot(&self, path: &Path) -> Option<WholeFileSlot> {
        let whole = self.0.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.get(path).cloned()
    }

    /// The bytes of an answer to a request for a range. A server that sends no ranges is asked once
    /// for a file.
    async fn answered(
        &self,
        path: &Path,
        answer: Response,
        range: &Range<u64>,
        expected: Option<&FileVersion>,
    ) -> Result<(Bytes, FileVersion), HttpFault> {
        if answer.status() != StatusCode::OK {
            return answer::read(answer, range, expected, path.as_ref()).await;
        }
        let slot = {
            let mut whole = self.0.whole.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(whole.entry(path.clone()).or_default())
        };
        let mut slot = slot.lock().await;
        if let Some(file) = slot.as_ref() {
            return file.part(range, expected);
        }
        let read = answer::read_whole(answer, expected, path.as_ref(), &self.0.kept);
        let (bytes, version) = read.await?;
        slot.insert(WholeFile { bytes, version }).part(range, expected)
    }

    /// The bytes of a range that is not longer than a step.
    async fn read(
        &self,
        path: &Path,
        range: &Range<u64>,
        expected: Option<&FileVersion>,
    ) -> Result<(Bytes, FileVersion), HttpFault> {
        if let Some(slot) = self.slot(path)
            && let Some(file) = slot.lock().await.as_ref()
        {
            return file.part(range, expected);
        }
        let last = range.end.saturating_sub(1);
        let mut headers = vec![(RANGE, format!("bytes={}-{last}", range.start))];
        let condition: Option<(HeaderName, &str)> = expected.and_then(FileVersion::condition);
        headers.extend(condition.map(|(name, value)| (name, value.to_owned())));
        let answer = self.0.requests.send(Method::GET, &self.url(path), &headers).await?;
        self.answered(path, answer, range, expected).await
    }

    /// The bytes of a range step by step.
    fn steps(
        self,
        path: Path,
        range: Range<u64>,
        expected: FileVersion,
    ) -> BoxStream<'static, Result<Bytes>> {
        let steps = stream::try_unfold(range.start, move |start| {
            let store = self.clone();
            let path = path.clone();
            let expected = expected.clone();
            let end = range.end;
            async move {
                if start >= end {
                    return Ok(None);
                }
                let step = start..end.min(start + STEP);
                let read = || store.read(&path, &step, Some(&expected));
                let (bytes, _) = store.repeated(&path, read).await?;
                Ok(Some((bytes, step.end)))
            }
        });
        steps.boxed()
    }

    fn meta(&self, path: &Path, version: &FileVersion) -> ObjectMeta {
        let parsed = version
            .modified
            .as_deref()
            .and_then(|modified| DateTime::parse_from_rfc2822(modified).ok());
        // Footers are kept for a tag only: a file may be written twice in a second.
        let text = version.text();
        let has_tag = version.tag.is_some();
        ObjectMeta {
            location: path.clone(),
            last_modified: parsed
                .map_or(DateTime::<Utc>::UNIX_EPOCH, |date| date.with_timezone(&Utc)),
            size: version.size,
            e_tag: has_tag.then(|| text.clone()),
            version: (!has_tag).then_some(text),
        }
    }
}

impl fmt::Display for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.origin.as_str())
    }
}

#[async_trait]
impl ObjectStore for HttpStore {
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let mut expected = options.if_match.as_deref().and_then(FileVersion::parsed);
        if options.head
            || expected.is_none() && !matches!(options.range, Some(GetRange::Bounded(_)))
        {
            expected = Some(self.repeated(path, || self.version(path)).await?);
        }
        let size = expected.as_ref().map(|version| version.size);
        let range = match (&options.range, size) {
            (Some(GetRange::Bounded(range)), size) => {
                range.start..range.end.min(size.unwrap_or(u64::MAX))
            }
            (Some(GetRange::Offset(start)), Some(size)) => (*start).min(size)..size,
            (Some(GetRange::Suffix(bytes)), Some(size)) => size.saturating_sub(*bytes)..size,
            (_, size) => 0..size.unwrap_or(0),
        };
        let range = if options.head { 0..0 } else { range };
        let (first, version) = match (range.is_empty(), expected) {
            (true, version) => (Bytes::new(), version.unwrap_or_default()),
            (false, expected) => {
                let step = range.start..range.end.min(range.start + STEP);
                let read = || self.read(path, &step, expected.as_ref());
                self.repeated(path, read).await?
            }
        };
        let range = range.start..range.end.min(version.size.max(range.start));
        let next = (range.start + first.len() as u64)..range.end;
        let rest = self.clone().steps(path.clone(), next, version.clone());
        let first = stream::iter((!first.is_empty()).then_some(Ok(first)));
        let payload = GetResultPayload::Stream(first.chain(rest).boxed());
        let meta = self.meta(path, &version);
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    fn list(&self, _prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter([Err(read_only("list"))]).boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(read_only("list"))
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only("put"))
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only("put"))
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        stream::iter([Err(read_only("delete"))]).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only("copy"))
    }
}

fn read_only(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "HTTP".to_owned() }
}
