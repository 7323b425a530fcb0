//! One block: compressed when that saves anything, and nothing at all when it is all zeros.
//!
//! | stored bytes | meaning |
//! |---|---|
//! | none | as many zeros as the block has |
//! | as many as the block has | the block as it is |
//! | fewer | zstd frames, one behind the other, each of which says its size |
//!
//! A frame has 128 KiB, which is what a kernel reads around a page that is missing: so a block is
//! fetched and verified as a whole, and decompressed only where it is read, and only once.
//!
//! Invariant: what is stored is verified before it is given to the decompressor.

use std::cell::RefCell;
use std::ops::Range;

use bytes::Bytes;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{find_frame_compressed_size, get_error_name, get_frame_content_size};

use super::{BlockDigest, BlockEntry};
use crate::{Error, Result};

/// Higher levels take ten times as long for a tenth less.
const LEVEL: i32 = 3;
/// Raw bytes of a frame. Frames of whole blocks would take 6 % less room.
pub(crate) const FRAME: usize = 128 << 10;

thread_local! {
    /// Its tables are larger than most frames, so that it is made once for each thread.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// A block as it is stored.
pub fn encode(raw: &[u8]) -> Result<Vec<u8>> {
    if raw.iter().all(|byte| *byte == 0) {
        return Ok(Vec::new());
    }
    let compressed =
        compress(raw).map_err(|error| Error::refused("a block", format!("zstd: {error}")))?;
    Ok(if compressed.len() < raw.len() { compressed } else { raw.to_vec() })
}

/// Whether these are the stored bytes that the table promises.
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

/// The raw bytes of a block, of which `raw` are expected. Verifies first.
pub fn decode(stored: &[u8], entry: &BlockEntry, raw: usize) -> Result<Vec<u8>> {
    verify(stored, entry)?;
    let mut block = Vec::with_capacity(raw);
    expand(stored, raw, 0..raw, &mut block, |frame| frame.decompress())?;
    Ok(block)
}

/// Appends the raw bytes `wanted` of a block of `raw` bytes, which was verified, to `to`.
/// Decompresses the frames in which they are; one of which a part is wanted is what `partly` gives.
pub(crate) fn expand(
    stored: &[u8],
    raw: usize,
    wanted: Range<usize>,
    to: &mut Vec<u8>,
    partly: impl Fn(&Frame<'_>) -> Result<Bytes>,
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

/// Some raw bytes of a block.
pub(crate) struct Frame<'a> {
    stored: &'a [u8],
    /// Which of them.
    pub raw: Range<usize>,
}

impl Frame<'_> {
    /// All of its bytes.
    pub fn decompress(&self) -> Result<Bytes> {
        let wrong = |reason: String| Error::damaged("a block", reason);
        let bytes = decompress(self.stored, self.raw.len())
            .map_err(|error| wrong(format!("zstd: {error}")))?;
        if bytes.len() == self.raw.len() {
            return Ok(bytes.into());
        }
        Err(wrong(format!("a frame holds {} bytes, not {}", bytes.len(), self.raw.len())))
    }

    /// Which of its bytes are among those `wanted` of the block.
    fn part(&self, wanted: &Range<usize>) -> Range<usize> {
        let Range { start, end } = self.raw;
        wanted.start.clamp(start, end) - start..wanted.end.clamp(start, end) - start
    }
}

/// The frames of a verified block of `raw` bytes in which some `wanted` ones are.
fn frames<'a>(stored: &'a [u8], raw: usize, wanted: &Range<usize>) -> Result<Vec<Frame<'a>>> {
    let wrong = |reason: String| Error::damaged("a block", reason);
    let (mut rest, mut at, mut found) = (stored, 0, Vec::new());
    while at < wanted.end {
        let size = find_frame_compressed_size(rest)
            .map_err(|code| wrong(format!("zstd: {}", get_error_name(code))))?;
        let (stored, behind) = rest.split_at(size);
        let holds = get_frame_content_size(stored).ok().flatten().unwrap_or(0);
        let holds = usize::try_from(holds).ok().filter(|holds| (1..=raw - at).contains(holds));
        let end = at + holds.ok_or_else(|| wrong(format!("a frame at {at} of {raw} is none")))?;
        if end > wanted.start {
            found.push(Frame { stored, raw: at..end });
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
        fn gives_back_what_was_encoded(raw in proptest::collection::vec(0u8..4, 1..20_000)) {
            let stored = encode(&raw).unwrap();
            prop_assert_eq!(decode(&stored, &entry(&stored), raw.len()).unwrap(), raw);
        }

        #[test]
        fn gives_any_part_of_a_block(
            from in 0usize..300_000, bytes in 0usize..300_000, seed in any::<u8>(), whole in any::<bool>(),
        ) {
            let raw: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8 ^ seed).collect();
            // Other writers' frames may be of another size.
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
        fn refuses_what_is_no_block_of_that_size(stored in any::<Vec<u8>>(), raw in 1usize..100_000) {
            // The digest agrees: whoever made it meant it.
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
    fn zeros_take_no_room() {
        assert!(encode(&[0; 4096]).unwrap().is_empty());
    }
}
