//! A whole image compared with its digests, so that a flipped bit anywhere is named.

use std::sync::Arc;

use crate::block::{BlobSummary, OciDigest, Table, verify};
use crate::read::BlockSource;
use crate::{Error, Image, Result};

/// Stored bytes asked for at once.
const AT_ONCE: u64 = 8 << 20;

/// One thing that is not what its digest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The blob.
    pub blob: OciDigest,
    /// The block; `None` for the table.
    pub block: Option<usize>,
    /// How it differs.
    pub reason: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks that were compared.
    pub blocks: u64,
    /// Stored bytes that were compared.
    pub bytes: u64,
    /// Everything that is wrong.
    pub damages: Vec<Damage>,
}

/// Compares every blob of an image, which its manifest names; the manifest itself was compared by
/// whoever read it. An error is a source that does not answer, or has no such blob.
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
        let table = match Table::decode(&bytes, &blob.root) {
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

    /// Compares blocks from `first` on and says where to go on.
    async fn run(
        &mut self,
        blob: &BlobSummary,
        table: &Table,
        first: usize,
        source: &Arc<dyn BlockSource>,
    ) -> Result<usize> {
        let start = table.stored(first..first).start;
        let mut end = first + 1;
        while end < table.entries().len() && table.stored(first..end + 1).end - start <= AT_ONCE {
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
        let (blob, reason) = (blob.digest.clone(), error.to_string());
        self.damages.push(Damage { blob, block, reason });
    }
}
