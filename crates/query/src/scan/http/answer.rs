//! Checks answers: whether they are of the file and the range that were asked for.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE, HeaderMap};
use reqwest::{Response, StatusCode};

use super::fault::HttpFault;
use super::request::fault;
use super::version::{Version, length};

/// The most bytes of all files of a server that sends no ranges: they are kept in memory.
pub(super) const MAX_WHOLE_BYTES: u64 = 64 << 20;

/// Reads an answer that is a range of a file: its bytes, and what the server says of the file.
/// `expected` is the version of planning.
pub(super) async fn read(
    answer: Response,
    range: &Range<u64>,
    expected: Option<&Version>,
    path: &str,
) -> Result<(Bytes, Version), HttpFault> {
    check_status(answer.status())?;
    check_encoding(answer.headers(), path)?;
    let (sent, size) = content_range(answer.headers())
        .ok_or_else(|| wrong("it does not say which range of the file it sends"))?;
    let version = Version::of(answer.headers(), size);
    if expected.is_some_and(|expected| !expected.may_be(&version)) {
        return Err(HttpFault::Changed);
    }
    if sent.start != range.start || sent.end != range.end.min(size) {
        return Err(wrong("it sends another range of the file than it was asked for"));
    }
    let length = sent.end - sent.start;
    let most = || wrong("it sends more bytes than it was asked for");
    let bytes = body(answer, length).await?.ok_or_else(most)?;
    if (bytes.len() as u64) < length {
        return Err(cut());
    }
    Ok((bytes, version))
}

/// Reads an answer that is a whole file, of at most so many bytes.
pub(super) async fn read_whole(
    answer: Response,
    expected: Option<&Version>,
    path: &str,
    most: u64,
) -> Result<(Bytes, Version), HttpFault> {
    check_encoding(answer.headers(), path)?;
    let said = length(answer.headers());
    if said.is_some_and(|bytes| bytes > most) {
        return Err(too_large());
    }
    let headers = answer.headers().clone();
    let bytes = body(answer, most).await?.ok_or_else(too_large)?;
    if said.is_some_and(|said| said != bytes.len() as u64) {
        return Err(cut());
    }
    let version = Version::of(&headers, bytes.len() as u64);
    match expected.is_some_and(|expected| !expected.may_be(&version)) {
        true => Err(HttpFault::Changed),
        false => Ok((bytes, version)),
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

/// Refuses a file that is compressed on the way: its ranges would be others. A compressed file is
/// often said to be one.
pub(super) fn check_encoding(headers: &HeaderMap, path: &str) -> Result<(), HttpFault> {
    let encoding = headers.get(CONTENT_ENCODING).map(|it| it.to_str().unwrap_or_default().trim());
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

/// The bytes of an answer; `None` if there are more than so many.
async fn body(mut answer: Response, most: u64) -> Result<Option<Bytes>, HttpFault> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| fault(&error))? {
        if bytes.len() as u64 + chunk.len() as u64 > most {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes.freeze()))
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
}
