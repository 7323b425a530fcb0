//! The encoding of one block: compressed if that saves space, and empty if it is all zeros.
//!
//! | stored bytes | meaning |
//! |---|---|
//! | none | a block of zeros |
//! | as many as the raw block | the raw block |
//! | fewer | consecutive zstd frames, each with its content size |
//!
//! A frame holds 128 KiB of raw bytes, the size of the kernel's read-ahead around a missing page. A
//! block is thus fetched and verified as a whole, but each frame is decompressed only when it is
//! read, and only once.
//!
//! Invariant: stored bytes are verified before they are decompressed.

use std::cell::RefCell;
use std::ops::Range;

use bytes::Bytes;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{find_frame_compressed_size, get_error_name, get_frame_content_size};

use super::{BlockDigest, BlockEntry};
use crate::{Error, Result};

/// The level of compression. Higher levels take ten times as long and save a tenth.
const LEVEL: i32 = 3;
/// Raw bytes per frame. One frame per block would save 6 % of the space.
pub(crate) const FRAME: usize = 128 << 10;

thread_local! {
    /// The decompressor of a thread: one for each, because its tables are larger than most frames.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Returns the stored form of a block.
pub fn encode(raw: &[u8]) -> Result<Vec<u8>> {
    if raw.iter().all(|byte| *byte == 0) {
        return Ok(Vec::new());
    }
    let compressed =
        compress(raw).map_err(|error| Error::refused("a block", format!("zstd: {error}")))?;
    Ok(if compressed.len() < raw.len() { compressed } else { raw.to_vec() })
}

/// Checks that these are the stored bytes that the table describes.
pub fn verify(stored: &[u8], entry: &BlockEntry) -> Result<()> {
    if stored.len() != entry.stored as usize {
        let reason = format!("{} bytes are stored, not {}", stored.len(), entry.stored);
        return Err(Error::damaged("a block", reason));
    }
    let found = BlockDigest::of(stored);
    if found != entry.digest {
        let reason = format!("its digest is {found}, not {}", entry.digest);
        return Err(Error::damaged("a block", reason));
    }
    Ok(())
}

/// Returns the raw bytes of a block; `raw` is their expected number. Verifies the stored bytes
/// first.
pub fn decode(stored: &[u8], entry: &BlockEntry, raw: usize) -> Result<Vec<u8>> {
    verify(stored, entry)?;
    let mut block = Vec::with_capacity(raw);
    expand(stored, raw, 0..raw, &mut block, |frame| frame.decompress())?;
    Ok(block)
}

/// Appends the raw bytes `wanted` of a verified block of `raw` bytes to `to`. Decompresses the
/// frames that contain them; for a frame of which only a part is wanted, `partly` returns the raw
/// bytes.
pub(crate) fn expand(
    stored: &[u8],
    raw: usize,
    wanted: Range<usize>,
    to: &mut Vec<u8>,
    partly: impl Fn(&BlockFrame<'_>) -> Result<Bytes>,
) -> Result<()> {
    if stored.is_empty() {
        to.resize(to.len() + wanted.len(), 0);
        return Ok(());
    }
    if stored.len() == raw {
        to.extend_from_slice(&stored[wanted]);
        return Ok(());
    }
    for frame in frames(stored, raw, &wanted)? {
        let part = frame.part(&wanted);
        if part.len() == frame.raw.len() {
            to.extend_from_slice(&frame.decompress()?);
        } else {
            to.extend_from_slice(&partly(&frame)?[part]);
        }
    }
    Ok(())
}

/// A frame of a block: a part that is decompressed without the others.
pub(crate) struct BlockFrame<'a> {
    stored: &'a [u8],
    /// The range of the frame in the block's raw bytes.
    pub raw: Range<usize>,
}

impl BlockFrame<'_> {
    /// Returns all raw bytes of the frame.
    pub fn decompress(&self) -> Result<Bytes> {
        let wrong = |reason: String| Error::damaged("a block", reason);
        let bytes = decompress(self.stored, self.raw.len())
            .map_err(|error| wrong(format!("zstd: {error}")))?;
        if bytes.len() == self.raw.len() {
            return Ok(bytes.into());
        }
        Err(wrong(format!("a frame holds {} bytes, not {}", bytes.len(), self.raw.len())))
    }

    /// Returns the range of the frame's bytes that is part of `wanted`, a range of the block.
    fn part(&self, wanted: &Range<usize>) -> Range<usize> {
        let Range { start, end } = self.raw;
        wanted.start.clamp(start, end) - start..wanted.end.clamp(start, end) - start
    }
}

/// Returns the frames of a verified block of `raw` bytes that overlap `wanted`.
fn frames<'a>(stored: &'a [u8], raw: usize, wanted: &Range<usize>) -> Result<Vec<BlockFrame<'a>>> {
    let wrong = |reason: String| Error::damaged("a block", reason);
    let mut rest = stored;
    let mut at = 0;
    let mut found = Vec::new();
    while at < wanted.end {
        let size = find_frame_compressed_size(rest)
            .map_err(|code| wrong(format!("zstd: {}", get_error_name(code))))?;
        let (stored, behind) = rest.split_at(size);
        let holds = get_frame_content_size(stored).ok().flatten().unwrap_or(0);
        let holds = usize::try_from(holds).ok().filter(|holds| (1..=raw - at).contains(holds));
        let end =
            at + holds.ok_or_else(|| wrong(format!("the frame at {at} of {raw} is invalid")))?;
        if end > wanted.start {
            found.push(BlockFrame { stored, raw: at..end });
        }
        (rest, at) = (behind, end);
    }
    if at == raw && !rest.is_empty() {
        return Err(wrong(format!("it holds more than {raw} bytes")));
    }
    Ok(found)
}

fn compress(raw: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut compressor = Compressor::new(LEVEL)?;
    let mut stored = Vec::with_capacity(raw.len() / 2);
    for part in raw.chunks(FRAME) {
        stored.extend(compressor.compress(part)?);
    }
    Ok(stored)
}

fn decompress(frame: &[u8], holds: usize) -> std::io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(decompressor) => decompressor.decompress(frame, holds),
        none => none.insert(Decompressor::new()?).decompress(frame, holds),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(stored: &[u8]) -> BlockEntry {
        BlockEntry { stored: stored.len() as u32, digest: BlockDigest::of(stored) }
    }

    proptest! {
        #[test]
        fn decodes_what_was_encoded(raw in proptest::collection::vec(0u8..4, 1..20_000)) {
            let stored = encode(&raw).unwrap();
            prop_assert_eq!(decode(&stored, &entry(&stored), raw.len()).unwrap(), raw);
        }

        #[test]
        fn reads_any_part_of_a_block(
            from in 0usize..300_000, bytes in 0usize..300_000, seed in any::<u8>(), whole in any::<bool>(),
        ) {
            let raw: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8 ^ seed).collect();
            // Other writers may use another frame size.
            let one = || zstd::bulk::compress(&raw, LEVEL).unwrap();
            let stored = if whole { one() } else { encode(&raw).unwrap() };
            let wanted = from..raw.len().min(from + bytes);
            let mut part = vec![1];
            expand(&stored, raw.len(), wanted.clone(), &mut part, |frame| frame.decompress()).unwrap();
            prop_assert_eq!(&part[1..], &raw[wanted]);
        }

        #[test]
        fn finds_a_flipped_bit(bit in 0usize..400) {
            let mut stored = encode(&[7; 4096]).unwrap();
            let entry = entry(&stored);
            let bit = bit % (stored.len() * 8);
            stored[bit / 8] ^= 1 << (bit % 8);
            let refused = decode(&stored, &entry, 4096).unwrap_err();
            prop_assert!(matches!(refused, Error::Damaged { .. }), "{}", refused);
        }

        #[test]
        fn never_returns_a_block_of_another_size(stored in any::<Vec<u8>>(), raw in 1usize..100_000) {
            // The digest matches: the input simulates a malicious writer.
            if let Ok(block) = decode(&stored, &entry(&stored), raw) {
                prop_assert_eq!(block.len(), raw);
            }
        }
    }

    #[test]
    fn frames_that_do_not_make_up_the_block_are_refused() {
        let raw = vec![7; 3 * FRAME / 2];
        let stored = encode(&raw).unwrap();
        let first = find_frame_compressed_size(&stored).unwrap();
        let refused = |stored: &[u8], raw: usize| decode(stored, &entry(stored), raw).unwrap_err();
        for (stored, raw) in [
            (&stored[..first], raw.len()),
            (&stored[first..], raw.len()),
            (&stored[..stored.len() - 1], raw.len()),
            (&stored, raw.len() - 1),
            (&stored, raw.len() + 1),
            (&[&stored[..], b"more"].concat(), raw.len()),
        ] {
            assert!(matches!(refused(stored, raw), Error::Damaged { .. }));
        }
    }

    #[test]
    fn zeros_are_stored_in_no_bytes() {
        assert!(encode(&[0; 4096]).unwrap().is_empty());
    }
}
