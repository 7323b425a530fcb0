//! Checks answers: whether they are of the file and the range that were asked for.

use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{Stream, TryStreamExt};
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE, HeaderMap};
use reqwest::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::request::fault;
use super::version::{FileVersion, length};
use crate::error::fault::http::HttpFault;

/// The most bytes of all files of a server that sends no ranges: they are kept in memory.
pub(super) const MAX_WHOLE_BYTES: u64 = 64 << 20;

/// How long the bytes of an answer may take, beside the time that the received bytes take at the
/// least rate.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const MIN_BYTES_PER_SECOND: u64 = 64 << 10;

/// The bytes of files that are kept in memory.
#[derive(Debug, Default)]
pub(super) struct CachedBytes(AtomicU64);

impl CachedBytes {
    /// Adds bytes, unless they would be more than [`MAX_WHOLE_BYTES`].
    fn add(&self, bytes: u64) -> bool {
        let sum = |kept: u64| kept.checked_add(bytes).filter(|sum| *sum <= MAX_WHOLE_BYTES);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
    }
}

/// The part of [`CachedBytes`] that a file takes, until it is dropped.
#[derive(Debug)]
pub(super) struct CacheShare<'k> {
    kept: &'k CachedBytes,
    bytes: u64,
}

impl<'k> CacheShare<'k> {
    fn add(&mut self, bytes: u64) -> bool {
        let has_room = self.kept.add(bytes);
        self.bytes += if has_room { bytes } else { 0 };
        has_room
    }

    /// Keeps the room for a file that stays as long as its store.
    fn stay(mut self) {
        self.bytes = 0;
    }
}

impl Drop for CacheShare<'_> {
    fn drop(&mut self) {
        self.kept.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads an answer that is a range of a file: its bytes, and what the server says of the file.
/// `expected` is the version of planning.
pub(super) async fn read(
    answer: Response,
    range: &Range<u64>,
    expected: Option<&FileVersion>,
    path: &str,
) -> Result<(Bytes, FileVersion), HttpFault> {
    check_status(answer.status())?;
    check_encoding(answer.headers(), path)?;
    let (sent, size) = content_range(answer.headers())
        .ok_or_else(|| wrong("it does not say which range of the file it sends"))?;
    let version = FileVersion::of(answer.headers(), size);
    if expected.is_some_and(|expected| !expected.may_be(&version)) {
        return Err(HttpFault::Changed);
    }
    if sent.start != range.start || sent.end != range.end.min(size) {
        return Err(wrong("it sends another range of the file than it was asked for"));
    }
    let length = sent.end - sent.start;
    let most = || wrong("it sends more bytes than it was asked for");
    let mut left = length;
    let take = |bytes| {
        let rest = left.checked_sub(bytes);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let bytes = body(chunks(answer), BODY_TIMEOUT, take).await?.ok_or_else(most)?;
    if (bytes.len() as u64) < length {
        return Err(cut());
    }
    Ok((bytes, version))
}

/// Reads an answer that is a whole file, if there is room for it.
pub(super) async fn read_whole(
    answer: Response,
    expected: Option<&FileVersion>,
    path: &str,
    kept: &CachedBytes,
) -> Result<(Bytes, FileVersion), HttpFault> {
    check_encoding(answer.headers(), path)?;
    let said = length(answer.headers());
    if said.is_some_and(|bytes| bytes > MAX_WHOLE_BYTES) {
        return Err(too_large());
    }
    let headers = answer.headers().clone();
    let mut room = CacheShare { kept, bytes: 0 };
    let bytes = body(chunks(answer), BODY_TIMEOUT, |bytes| room.add(bytes)).await?;
    let bytes = bytes.ok_or_else(too_large)?;
    if said.is_some_and(|said| said != bytes.len() as u64) {
        return Err(cut());
    }
    let version = FileVersion::of(&headers, bytes.len() as u64);
    match expected.is_some_and(|expected| !expected.may_be(&version)) {
        true => Err(HttpFault::Changed),
        false => {
            room.stay();
            Ok((bytes, version))
        }
    }
}

/// Refuses an answer without a file.
pub(super) fn check_status(status: StatusCode) -> Result<(), HttpFault> {
    Err(match status.as_u16() {
        200 | 206 => return Ok(()),
        code @ (404 | 410) => HttpFault::Missing(code),
        // The file is another one, or shorter than it was.
        412 | 416 => HttpFault::Changed,
        code @ (408 | 429 | 500..=599) => HttpFault::Failed(code),
        code @ 400..=499 => HttpFault::Refused(code),
        code => wrong(&format!("its answer is none of a file: status code: {code}")),
    })
}

/// Refuses a file that is compressed on the way: its ranges would be others. A server often
/// declares a file that is itself compressed as compressed on the way, too.
pub(super) fn check_encoding(headers: &HeaderMap, path: &str) -> Result<(), HttpFault> {
    let encoding =
        headers.get(CONTENT_ENCODING).map(|header| header.to_str().unwrap_or_default().trim());
    let is_packed = path.ends_with(".gz") || path.ends_with(".zst");
    match encoding {
        None | Some("" | "identity") => Ok(()),
        Some(_) if is_packed => Ok(()),
        Some(_) => Err(wrong("it compresses the file on the way, though it was asked not to")),
    }
}

/// The range and the size of `bytes 0-99/1234`.
pub(super) fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim();
    let (range, size) = text.strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let size = size.trim().parse().ok()?;
    (first <= last && last < size).then_some((first..last + 1, size))
}

/// The chunks of an answer.
fn chunks(answer: Response) -> impl Stream<Item = Result<Bytes, HttpFault>> {
    answer.bytes_stream().map_err(|error| fault(&error))
}

/// The bytes of an answer; `None` if `take` refuses a number of them. They may take
/// `timeout`, and longer by what has come at [`MIN_BYTES_PER_SECOND`].
async fn body(
    chunks: impl Stream<Item = Result<Bytes, HttpFault>>,
    timeout: Duration,
    mut take: impl FnMut(u64) -> bool,
) -> Result<Option<Bytes>, HttpFault> {
    let mut chunks = pin!(chunks);
    let mut bytes = BytesMut::new();
    let begin = Instant::now();
    loop {
        let millis = bytes.len() as u64 * 1000 / MIN_BYTES_PER_SECOND;
        let end = begin + timeout + Duration::from_millis(millis);
        let next = timeout_at(end, chunks.try_next()).await.map_err(|_| slow())?;
        let Some(chunk) = next? else { return Ok(Some(bytes.freeze())) };
        if !take(chunk.len() as u64) {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
}

fn slow() -> HttpFault {
    HttpFault::Connection("the server sends its answer too slowly".to_owned())
}

fn wrong(why: &str) -> HttpFault {
    HttpFault::Answer(format!("the server answers wrongly: {why}"))
}

fn cut() -> HttpFault {
    HttpFault::Connection("the server ended its answer too early".to_owned())
}

fn too_large() -> HttpFault {
    HttpFault::Answer(format!(
        "the server sends no ranges of files, and what is read of it has more than {} MiB",
        MAX_WHOLE_BYTES >> 20
    ))
}

#[cfg(test)]
mod tests {
    use futures::stream::{self, StreamExt};

    use super::*;

    #[test]
    fn ranges_are_those_of_bytes_within_the_file() {
        let of = |text: &str| {
            let headers = HeaderMap::from_iter([(CONTENT_RANGE, text.parse().unwrap())]);
            content_range(&headers)
        };
        assert_eq!(of("bytes 0-0/1"), Some((0..1, 1)));
        assert_eq!(of("bytes 5-9/10"), Some((5..10, 10)));
        for text in
            ["bytes 0-1/*", "bytes */10", "bytes 5-10/10", "bytes 6-5/10", "0-1/2", "lines 0-1/2"]
        {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn a_drip_of_bytes_ends() {
        let sent = |bytes: usize| async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok::<_, HttpFault>(Bytes::from(vec![0; bytes]))
        };
        let drip = stream::repeat(1).then(sent);
        assert_eq!(body(drip, Duration::from_millis(20), |_| true).await, Err(slow()));
        // A server that has sent enough has longer.
        let enough = Bytes::from(vec![0; 10 * MIN_BYTES_PER_SECOND as usize]);
        let some = stream::iter([Ok(enough)]).chain(stream::iter([1, 1]).then(sent));
        let bytes = body(some, Duration::ZERO, |_| true).await.unwrap().unwrap();
        assert_eq!(bytes.len() as u64, 10 * MIN_BYTES_PER_SECOND + 2);
        let refused = body(stream::iter([Ok(Bytes::from_static(b"a"))]), BODY_TIMEOUT, |_| false);
        assert_eq!(refused.await, Ok(None));
    }

    #[test]
    fn room_is_given_back_unless_the_file_stays() {
        let kept = CachedBytes::default();
        let mut room = CacheShare { kept: &kept, bytes: 0 };
        assert!(room.add(MAX_WHOLE_BYTES) && !room.add(1) && !kept.add(u64::MAX));
        drop(room);
        let mut room = CacheShare { kept: &kept, bytes: 0 };
        assert!(room.add(MAX_WHOLE_BYTES));
        room.stay();
        assert!(!kept.add(1));
    }
}
