//! Limits of layers, so that a small download cannot fill the memory or the disk.

use crate::{Error, Result};

/// Limits of one layer. The defaults are far above the sizes of real images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerLimits {
    /// The most entries.
    pub entries: u64,
    /// The most bytes of the uncompressed stream.
    pub bytes: u64,
    /// The most bytes of names, link targets and extended attributes together.
    pub metadata_bytes: u64,
    /// The most bytes of one extended header or long name.
    pub header_bytes: u64,
}

impl Default for LayerLimits {
    fn default() -> Self {
        Self {
            entries: 4_000_000,
            bytes: 256 << 30,
            metadata_bytes: 1 << 30,
            header_bytes: 1 << 20,
        }
    }
}

impl LayerLimits {
    pub(super) fn check(found: u64, limit: u64, what: &str, unit: &'static str) -> Result<()> {
        if found <= limit {
            return Ok(());
        }
        Err(Error::Limit { what: what.to_owned(), limit, unit })
    }
}
