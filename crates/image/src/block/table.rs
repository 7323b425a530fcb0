//! The offset table: position, length and digest of each block of a blob.
//!
//! Offsets are computed from the lengths, not stored: blocks cannot overlap, lie outside the blob
//! or leave gaps.

use std::ops::Range;

use super::{BlockDigest, BlockEntry, BlockSize, root};
use crate::{Error, Result};

/// Bytes of an entry: length (u32) and digest.
const ENTRY_BYTES: usize = 36;
/// Bytes at the end of a blob that locate its table.
pub const FOOTER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"SNOWBLK1";

/// The table of one blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTable {
    block_size: BlockSize,
    raw_size: u64,
    entries: Vec<BlockEntry>,
    /// The start of each block, followed by the end of the last one.
    offsets: Vec<u64>,
}

impl BlockTable {
    /// Creates a table from its entries, in order. An entry's stored length is at most its raw
    /// length.
    pub fn new(block_size: BlockSize, raw_size: u64, entries: Vec<BlockEntry>) -> Result<Self> {
        let wrong = |reason: String| Err(Error::refused("an offset table", reason));
        if entries.len() as u64 != block_size.count(raw_size) {
            return wrong(format!("{} blocks for {raw_size} bytes", entries.len()));
        }
        let mut offsets = Vec::with_capacity(entries.len() + 1);
        offsets.push(0);
        let mut end = 0;
        for (index, entry) in entries.iter().enumerate() {
            let raw = raw_of(block_size, raw_size, index as u64);
            if u64::from(entry.stored) > raw {
                return wrong(format!("block {index} is stored in {} bytes", entry.stored));
            }
            end += u64::from(entry.stored);
            offsets.push(end);
        }
        Ok(Self { block_size, raw_size, entries, offsets })
    }

    /// Returns the block size.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Returns the number of raw bytes of the blob.
    pub fn raw_size(&self) -> u64 {
        self.raw_size
    }

    /// Returns all blocks in order.
    pub fn entries(&self) -> &[BlockEntry] {
        &self.entries
    }

    /// Returns the offset in the blob at which the blocks end and the table begins.
    pub fn offset(&self) -> u64 {
        self.offsets[self.entries.len()]
    }

    /// Returns the number of bytes of the whole blob.
    pub fn blob_size(&self) -> u64 {
        blob_size(self.offset(), self.entries.len() as u64)
    }

    /// Returns the range of the blob in which these blocks are stored.
    pub fn stored(&self, blocks: Range<usize>) -> Range<u64> {
        self.offsets[blocks.start]..self.offsets[blocks.end]
    }

    /// Returns the number of raw bytes of a block.
    pub fn raw_of(&self, index: usize) -> usize {
        raw_of(self.block_size, self.raw_size, index as u64) as usize
    }

    /// Returns the blocks that a range of raw bytes touches; the part of the range past the end is
    /// ignored.
    pub fn touched(&self, raw: Range<u64>) -> Range<usize> {
        let end = raw.end.min(self.raw_size);
        if raw.start >= end {
            return 0..0;
        }
        let size = self.block_size.bytes() as u64;
        (raw.start / size) as usize..end.div_ceil(size) as usize
    }

    /// Returns the blocks of which a range of the blob has bytes; the part of the range behind the
    /// last block is ignored.
    pub fn stored_in(&self, range: &Range<u64>) -> Range<usize> {
        let end = range.end.min(self.offset());
        if range.start >= end {
            return self.entries.len()..self.entries.len();
        }
        // Of blocks without stored bytes, which begin at the same offset, the last one.
        let start = self.offsets.partition_point(|offset| *offset <= range.start) - 1;
        start..self.offsets.partition_point(|offset| *offset < end)
    }

    /// Returns the Merkle root of the blocks.
    pub fn root(&self) -> BlockDigest {
        root(&self.entries, self.raw_size, self.block_size)
    }

    /// Returns the encoded table with its footer, as it follows the blocks in a blob.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * ENTRY_BYTES + FOOTER_BYTES);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.stored.to_le_bytes());
            bytes.extend_from_slice(&entry.digest.0);
        }
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[self.block_size.log2(), 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&self.raw_size.to_le_bytes());
        bytes.extend_from_slice(&self.offset().to_le_bytes());
        bytes.extend_from_slice(&self.root().0);
        bytes
    }

    /// Decodes the bytes that follow the blocks in a blob; `expected` is the root from the
    /// manifest.
    pub fn decode(bytes: &[u8], expected: &BlockDigest) -> Result<Self> {
        let table = Self::decode_unverified(bytes)?;
        let found = table.root();
        if found != *expected {
            let reason = format!("its root is {found}, not {expected}");
            return Err(Error::damaged("an offset table", reason));
        }
        Ok(table)
    }

    /// Decodes without a manifest: checks only the root that the footer contains.
    pub fn decode_unverified(bytes: &[u8]) -> Result<Self> {
        let wrong = |reason: &str| Error::refused("an offset table", reason);
        let Some((entries, footer)) = bytes.split_last_chunk::<FOOTER_BYTES>() else {
            return Err(wrong("it is shorter than its footer"));
        };
        if &footer[..8] != MAGIC || footer[9..16] != [0; 7] {
            return Err(wrong("its footer is invalid"));
        }
        if entries.len() % ENTRY_BYTES != 0 {
            return Err(wrong("its length is not a multiple of the entry size"));
        }
        let size = 1u64.checked_shl(u32::from(footer[8])).unwrap_or(0);
        let raw_size = read_u64(&footer[16..24]);
        let entries = entries.chunks_exact(ENTRY_BYTES).map(read_entry).collect();
        let table = Self::new(BlockSize::try_from(size)?, raw_size, entries)?;
        if table.offset() != read_u64(&footer[24..32]) || table.root().0 != footer[32..] {
            return Err(wrong("its footer does not agree with its entries"));
        }
        Ok(table)
    }
}

/// Returns the number of bytes of a blob whose blocks take `stored` bytes.
pub(crate) fn blob_size(stored: u64, blocks: u64) -> u64 {
    stored + blocks * ENTRY_BYTES as u64 + FOOTER_BYTES as u64
}

fn raw_of(block_size: BlockSize, raw_size: u64, index: u64) -> u64 {
    let size = block_size.bytes() as u64;
    size.min(raw_size - index * size)
}

fn read_entry(bytes: &[u8]) -> BlockEntry {
    let mut digest = [0; 32];
    digest.copy_from_slice(&bytes[4..ENTRY_BYTES]);
    let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    BlockEntry { stored, digest: BlockDigest(digest) }
}

fn read_u64(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(bytes);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(lengths: &[u32], last: u64) -> BlockTable {
        let size = BlockSize::MIN;
        let raw = (lengths.len() as u64).saturating_sub(1) * size.bytes() as u64
            + if lengths.is_empty() { 0 } else { last };
        let entries = lengths
            .iter()
            .map(|stored| BlockEntry { stored: *stored, digest: BlockDigest::of(&[1]) })
            .collect();
        BlockTable::new(size, raw, entries).unwrap()
    }

    proptest! {
        #[test]
        fn reads_what_it_wrote(lengths in proptest::collection::vec(0u32..60_000, 0..40)) {
            let table = table(&lengths, 60_001);
            let bytes = table.encode();
            prop_assert_eq!(table.blob_size() - table.offset(), bytes.len() as u64);
            prop_assert_eq!(BlockTable::decode(&bytes, &table.root()).unwrap(), table);
        }

        #[test]
        fn finds_a_flipped_bit_anywhere(bit in 0usize..(3 * 36 + 64) * 8) {
            let table = table(&[5, 6, 7], 1000);
            let mut bytes = table.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(BlockTable::decode(&bytes, &table.root()).is_err());
        }

        #[test]
        fn never_panics_on_any_bytes(bytes in any::<Vec<u8>>()) {
            let mut framed = bytes.clone();
            framed.extend_from_slice(MAGIC);
            framed.extend(bytes.iter().copied().chain(std::iter::repeat(0)).take(56));
            let _ = (BlockTable::decode_unverified(&bytes), BlockTable::decode_unverified(&framed));
        }
    }

    #[test]
    fn finds_the_blocks_that_a_range_touches() {
        let table = table(&[1, 1, 1], 10);
        let size = 64 << 10;
        assert_eq!(table.touched(0..1), 0..1);
        assert_eq!(table.touched(size - 1..size + 1), 0..2);
        assert_eq!(table.touched(size..size * 9), 1..3);
        assert_eq!(table.touched(size * 2 + 10..size * 9), 0..0);
        assert_eq!(table.raw_of(2), 10);
    }

    #[test]
    fn refuses_a_block_that_is_longer_than_its_content() {
        let entry = BlockEntry { stored: 11, digest: BlockDigest::of(&[]) };
        BlockTable::new(BlockSize::MIN, 10, vec![entry]).unwrap_err();
    }
}
