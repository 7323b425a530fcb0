//! Verification of a whole image: compares every digest, so that any flipped bit is reported.

use std::sync::Arc;

use crate::block::{BlobSummary, BlockTable, OciDigest, verify};
use crate::read::BlockSource;
use crate::{Error, Image, Result};

/// Stored bytes per request.
const REQUEST_BYTES: u64 = 8 << 20;

/// A blob table or block whose bytes do not match their digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The blob.
    pub blob: OciDigest,
    /// The block; `None` for the table.
    pub block: Option<usize>,
    /// How it differs.
    pub reason: String,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks that were compared.
    pub blocks: u64,
    /// Stored bytes that were compared.
    pub bytes: u64,
    /// Everything that is wrong.
    pub damages: Vec<Damage>,
}

/// Compares every blob that an image's manifest references. The caller must have verified the
/// manifest itself. Fails if the source does not answer or a blob does not exist.
pub async fn verify_image(image: &Image, source: &Arc<dyn BlockSource>) -> Result<Verified> {
    let mut verified = Verified::default();
    for blob in image.blobs() {
        verified.blob(blob, source).await?;
    }
    Ok(verified)
}

impl Verified {
    async fn blob(&mut self, blob: &BlobSummary, source: &Arc<dyn BlockSource>) -> Result<()> {
        let bytes = source.fetch(&blob.digest, blob.table_offset..blob.size).await?;
        self.bytes += bytes.len() as u64;
        let table = match BlockTable::decode(&bytes, &blob.root) {
            Ok(table) => table,
            Err(error) => {
                self.damage(blob, None, &error);
                return Ok(());
            }
        };
        let mut next = 0;
        while next < table.entries().len() {
            next = self.run(blob, &table, next, source).await?;
        }
        Ok(())
    }

    /// Compares blocks from `first` on and returns the index of the next block.
    async fn run(
        &mut self,
        blob: &BlobSummary,
        table: &BlockTable,
        first: usize,
        source: &Arc<dyn BlockSource>,
    ) -> Result<usize> {
        let start = table.stored(first..first).start;
        let mut end = first + 1;
        while end < table.entries().len()
            && table.stored(first..end + 1).end - start <= REQUEST_BYTES
        {
            end += 1;
        }
        let range = table.stored(first..end);
        let bytes = match range.is_empty() {
            true => bytes::Bytes::new(),
            false => source.fetch(&blob.digest, range).await?,
        };
        for index in first..end {
            let at = table.stored(index..index + 1);
            let stored = bytes.get((at.start - start) as usize..(at.end - start) as usize);
            if let Err(error) = verify(stored.unwrap_or_default(), &table.entries()[index]) {
                self.damage(blob, Some(index), &error);
            }
        }
        self.blocks += (end - first) as u64;
        self.bytes += bytes.len() as u64;
        Ok(end)
    }

    fn damage(&mut self, blob: &BlobSummary, block: Option<usize>, error: &Error) {
        let blob = blob.digest.clone();
        let reason = error.to_string();
        self.damages.push(Damage { blob, block, reason });
    }
}
