//! Blobs: bytes split into blocks that are compressed and digested independently, so that any range
//! can be read, verified and forwarded without the rest (FaaSNet, section 3.5).
//!
//! | part | file |
//! |---|---|
//! | one block: compress, verify, decompress | `codec` |
//! | digests, and the Merkle tree over them | `digest`, `merkle` |
//! | position of each block | `table` |
//! | write raw bytes as a blob, compressed by several threads | `writer`, `compress` |
//!
//! The byte format is specified in `docs/reference/image-format.md`. Invariant: for one version
//! of the compressor, a blob is a function of its raw bytes and its block size.

mod codec;
mod compress;
mod digest;
mod merkle;
mod table;
mod writer;

pub(crate) use codec::{BlockFrame, FRAME, expand};
pub use codec::{decode, encode, verify};
pub use digest::{BlockDigest, OciDigest};
pub use merkle::root;
pub use table::{BlockTable, FOOTER_BYTES};
pub use writer::{BlobSummary, BlobWriter};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A block of a blob in its stored form, as the table of blocks lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// The number of the block's bytes in the blob; 0 for a block of zeros.
    pub stored: u32,
    /// The digest of the stored bytes.
    pub digest: BlockDigest,
}

/// Raw bytes of a block, except for the last one of a blob: a power of two, 64 KiB to 4 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BlockSize(u8);

impl BlockSize {
    /// The smallest block size, 64 KiB.
    pub const MIN: Self = Self(16);
    /// The largest block size, 4 MiB.
    pub const MAX: Self = Self(22);

    /// Returns the size in bytes.
    pub fn bytes(self) -> usize {
        1 << self.0
    }

    /// Returns the size as a power of two: its binary logarithm.
    pub fn log2(self) -> u8 {
        self.0
    }

    /// Returns the number of blocks of `raw` bytes.
    pub fn count(self, raw: u64) -> u64 {
        raw.div_ceil(self.bytes() as u64)
    }
}

/// 512 KiB (FaaSNet, section 4.1).
impl Default for BlockSize {
    fn default() -> Self {
        Self(19)
    }
}

impl TryFrom<u64> for BlockSize {
    type Error = Error;

    fn try_from(bytes: u64) -> Result<Self> {
        let log2 = bytes.trailing_zeros() as u8;
        if !bytes.is_power_of_two() || !(Self::MIN.0..=Self::MAX.0).contains(&log2) {
            let what = format!("a block size of {bytes} bytes");
            return Err(Error::refused(what, "it must be a power of two from 65536 to 4194304"));
        }
        Ok(Self(log2))
    }
}

impl From<BlockSize> for u64 {
    fn from(size: BlockSize) -> Self {
        size.bytes() as u64
    }
}
