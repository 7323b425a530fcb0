//! Decompresses text as its bytes arrive.
//!
//! The decoders of gzip and zstd pull their input. They are given a reader over the bytes so far,
//! which reports that it would block at the end of these bytes; the decoders keep their state then.
//! In contrast to DataFusion's stream they read all members of a file, and all its frames.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use snowmelt_files::Compression;

/// Bytes that are decompressed at a time.
const STEP: usize = 64 << 10;

/// A decoder with the input so far.
pub(crate) struct Inflater {
    feed: Arc<Mutex<Feed>>,
    decoder: Box<dyn Read + Send>,
    output: Vec<u8>,
}

/// The result of a step of decompression.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Inflated {
    /// Bytes of the text.
    Bytes(Bytes),
    /// More input is needed.
    Hungry,
    /// The text is complete.
    End,
}

impl Inflater {
    /// Creates a decoder; `None` if the file is not compressed.
    pub(crate) fn new(compression: Compression) -> io::Result<Option<Self>> {
        let kind = match compression {
            Compression::None => return Ok(None),
            Compression::Gzip => FileCompressionType::GZIP,
            Compression::Zstd => FileCompressionType::ZSTD,
        };
        let feed = Arc::new(Mutex::new(Feed::default()));
        let decoder = kind.convert_read(Feeding(Arc::clone(&feed))).map_err(io::Error::other)?;
        Ok(Some(Self { feed, decoder, output: vec![0; STEP] }))
    }

    /// Adds input.
    pub(crate) fn feed(&self, bytes: Bytes) {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner).bytes.push_back(bytes);
    }

    /// Notes that the input is complete.
    pub(crate) fn end(&self) {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
    }

    /// The next bytes of the text.
    pub(crate) fn next(&mut self) -> io::Result<Inflated> {
        loop {
            match self.decoder.read(&mut self.output) {
                Ok(0) => return Ok(Inflated::End),
                Ok(read) => {
                    return Ok(Inflated::Bytes(Bytes::copy_from_slice(&self.output[..read])));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Inflated::Hungry),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Default)]
struct Feed {
    bytes: VecDeque<Bytes>,
    ended: bool,
}

struct Feeding(Arc<Mutex<Feed>>);

impl Read for Feeding {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut feed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(first) = feed.bytes.front_mut() {
            if first.is_empty() {
                feed.bytes.pop_front();
                continue;
            }
            let read = first.len().min(buffer.len());
            first.copy_to_slice(&mut buffer[..read]);
            return Ok(read);
        }
        match feed.ended {
            true => Ok(0),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

/// Returns at most `limit` bytes of the beginning of a text, and whether they are the whole text.
/// `raw` is the beginning of its file, or the whole file.
pub fn inflate_beginning(
    compression: Compression,
    raw: Bytes,
    whole: bool,
    limit: usize,
) -> io::Result<(Vec<u8>, bool)> {
    let inflater = if raw.is_empty() { None } else { Inflater::new(compression)? };
    let Some(mut inflater) = inflater else {
        let cut = raw.len().min(limit);
        return Ok((raw[..cut].to_vec(), whole && cut == raw.len()));
    };
    inflater.feed(raw);
    if whole {
        inflater.end();
    }
    let mut text = Vec::new();
    loop {
        match inflater.next()? {
            Inflated::Bytes(bytes) => text.extend_from_slice(&bytes),
            Inflated::Hungry => return Ok((text, false)),
            Inflated::End => return Ok((text, true)),
        }
        if text.len() > limit {
            text.truncate(limit);
            return Ok((text, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `echo -n hello | gzip -n`: one member.
    const GZIP: [u8; 25] = [
        31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 203, 72, 205, 201, 201, 7, 0, 134, 166, 16, 54, 5, 0, 0, 0,
    ];
    /// `echo -n hello | zstd --no-check`: one frame.
    const ZSTD: [u8; 14] = [40, 181, 47, 253, 0, 88, 41, 0, 0, 104, 101, 108, 108, 111];

    fn inflate(compression: Compression, bytes: &[u8], step: usize) -> io::Result<Vec<u8>> {
        let mut inflater = Inflater::new(compression)?.unwrap();
        let mut text = Vec::new();
        let mut rest = bytes.chunks(step);
        loop {
            match inflater.next()? {
                Inflated::Bytes(bytes) => text.extend_from_slice(&bytes),
                Inflated::End => return Ok(text),
                Inflated::Hungry => match rest.next() {
                    Some(bytes) => inflater.feed(Bytes::copy_from_slice(bytes)),
                    None => inflater.end(),
                },
            }
        }
    }

    #[test]
    fn all_members_and_frames_are_read_however_the_bytes_arrive() {
        for (compression, one) in [(Compression::Gzip, &GZIP[..]), (Compression::Zstd, &ZSTD[..])] {
            let twice: Vec<u8> = [one, one].concat();
            for step in [1, 2, 3, 7, 100] {
                let text = inflate(compression, &twice, step).unwrap();
                assert_eq!(text, b"hellohello", "{compression:?} by {step}");
            }
        }
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        for (compression, one) in [(Compression::Gzip, &GZIP[..]), (Compression::Zstd, &ZSTD[..])] {
            for length in 1..one.len() {
                let found = inflate(compression, &one[..length], 100);
                assert!(found.is_err(), "{compression:?}, {length} bytes: {found:?}");
            }
        }
    }

    #[test]
    fn a_beginning_is_bounded() {
        let all = Bytes::from_static(&GZIP);
        let of = |raw: Bytes, whole, limit| {
            inflate_beginning(Compression::Gzip, raw, whole, limit).unwrap()
        };
        assert_eq!(of(all.clone(), true, 100), (b"hello".to_vec(), true));
        assert_eq!(of(all.clone(), true, 3), (b"hel".to_vec(), false));
        assert!(!of(all.slice(..12), false, 100).1);
        let plain = inflate_beginning(Compression::None, all, true, 3).unwrap();
        assert_eq!(plain, (GZIP[..3].to_vec(), false));
    }
}
