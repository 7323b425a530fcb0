//! One block: compressed when that saves anything, and nothing at all when it is all zeros.
//!
//! | stored bytes | meaning |
//! |---|---|
//! | none | as many zeros as the block has |
//! | as many as the block has | the block as it is |
//! | fewer | one zstd frame that says its size |
//!
//! Invariant: what is stored is verified before it is given to the decompressor.

use std::cell::RefCell;

use zstd::bulk::Decompressor;

use super::{BlockDigest, BlockEntry};
use crate::{Error, Result};

/// Higher levels take ten times as long for a tenth less.
const LEVEL: i32 = 3;

/// A block as it is stored.
pub fn encode(raw: &[u8]) -> Result<Vec<u8>> {
    if raw.iter().all(|byte| *byte == 0) {
        return Ok(Vec::new());
    }
    let compressed = zstd::bulk::compress(raw, LEVEL)
        .map_err(|error| Error::refused("a block", format!("zstd: {error}")))?;
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

thread_local! {
    /// Its tables are larger than most blocks' stored bytes, so that it is made once for each thread.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The raw bytes of a block, of which `raw` are expected. Verifies first.
pub fn decode(stored: &[u8], entry: &BlockEntry, raw: usize) -> Result<Vec<u8>> {
    verify(stored, entry)?;
    expand(stored, raw)
}

/// The same for stored bytes that were verified just now.
pub(crate) fn expand(stored: &[u8], raw: usize) -> Result<Vec<u8>> {
    if stored.is_empty() {
        return Ok(vec![0; raw]);
    }
    if stored.len() == raw {
        return Ok(stored.to_vec());
    }
    let block = decompress(stored, raw)
        .map_err(|error| Error::damaged("a block", format!("zstd: {error}")))?;
    if block.len() != raw {
        let reason = format!("it holds {} bytes, not {raw}", block.len());
        return Err(Error::damaged("a block", reason));
    }
    Ok(block)
}

fn decompress(stored: &[u8], raw: usize) -> std::io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(decompressor) => decompressor.decompress(stored, raw),
        none => none.insert(Decompressor::new()?).decompress(stored, raw),
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
    fn zeros_take_no_room() {
        assert!(encode(&[0; 4096]).unwrap().is_empty());
    }
}
