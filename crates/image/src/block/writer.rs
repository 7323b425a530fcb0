//! Writes raw bytes as a blob, in one pass and in bounded memory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use super::compress::{CompressedBlock, CompressorPool};
use super::{BlockDigest, BlockEntry, BlockSize, BlockTable, OciDigest};
use crate::{Error, Result};

/// The facts that a reader needs to read and verify any part of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlobSummary {
    /// SHA-256 of the whole blob, as registries name it.
    pub digest: OciDigest,
    /// Bytes of the whole blob.
    pub size: u64,
    /// Bytes of the blob after decompression of every block.
    pub raw_size: u64,
    /// Raw bytes per block.
    pub block_size: BlockSize,
    /// The offset in the blob at which the blocks end and the table begins.
    pub table_offset: u64,
    /// The Merkle root over the blocks.
    pub root: BlockDigest,
}

impl BlobSummary {
    /// Refuses sizes that contradict each other.
    pub fn check(&self) -> Result<()> {
        let blocks = self.block_size.count(self.raw_size);
        if blocks > u64::from(u32::MAX)
            || self.table_offset > self.raw_size
            || super::table::blob_size(self.table_offset, blocks) != self.size
        {
            return Err(Error::refused(format!("the blob {}", self.digest), "its sizes disagree"));
        }
        Ok(())
    }
}

/// Writes a blob.
pub struct BlobWriter<W> {
    out: W,
    path: PathBuf,
    block_size: BlockSize,
    current: Vec<u8>,
    raw_size: u64,
    pool: CompressorPool,
    entries: Vec<BlockEntry>,
    hasher: sha2::Sha256,
}

impl<W: Write> BlobWriter<W> {
    /// Makes a writer to `out`; `path` names the output in errors.
    pub fn new(out: W, path: &Path, block_size: BlockSize) -> Self {
        Self {
            out,
            path: path.to_owned(),
            block_size,
            current: Vec::with_capacity(block_size.bytes()),
            raw_size: 0,
            pool: CompressorPool::new(),
            entries: Vec::new(),
            hasher: sha2::Sha256::new(),
        }
    }

    /// Returns the number of raw bytes written so far.
    pub fn position(&self) -> u64 {
        self.raw_size
    }

    /// Appends raw bytes.
    pub fn append(&mut self, mut raw: &[u8]) -> Result<()> {
        self.raw_size += raw.len() as u64;
        while !raw.is_empty() {
            let room = self.block_size.bytes() - self.current.len();
            let (now, later) = raw.split_at(room.min(raw.len()));
            self.current.extend_from_slice(now);
            raw = later;
            if self.current.len() == self.block_size.bytes() {
                self.cut()?;
            }
        }
        Ok(())
    }

    /// Appends zeros up to the next multiple of `unit`.
    pub fn align(&mut self, unit: usize) -> Result<()> {
        let over = (self.raw_size % unit as u64) as usize;
        if over == 0 { Ok(()) } else { self.append(&vec![0; unit - over]) }
    }

    /// Writes the remaining bytes and the table. Does not flush the output to the disk.
    pub fn finish(mut self) -> Result<(BlobSummary, W)> {
        if !self.current.is_empty() {
            self.cut()?;
        }
        while let Some(compressed) = self.pool.pop()? {
            self.store(compressed)?;
        }
        let entries = std::mem::take(&mut self.entries);
        let table = BlockTable::new(self.block_size, self.raw_size, entries)?;
        self.emit(&table.encode())?;
        self.out.flush().map_err(Error::io("write", &self.path))?;
        let summary = BlobSummary {
            digest: OciDigest::from_hasher(self.hasher),
            size: table.blob_size(),
            raw_size: self.raw_size,
            block_size: self.block_size,
            table_offset: table.offset(),
            root: table.root(),
        };
        Ok((summary, self.out))
    }

    fn cut(&mut self) -> Result<()> {
        let next = Vec::with_capacity(self.block_size.bytes());
        let block = std::mem::replace(&mut self.current, next);
        match self.pool.push(block)? {
            Some(compressed) => self.store(compressed),
            None => Ok(()),
        }
    }

    fn store(&mut self, (stored, entry): CompressedBlock) -> Result<()> {
        self.entries.push(entry);
        self.emit(&stored)
    }

    fn emit(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes).map_err(Error::io("write", &self.path))
    }
}

impl<W: Write> Write for BlobWriter<W> {
    fn write(&mut self, raw: &[u8]) -> io::Result<usize> {
        self.append(raw).map_err(io::Error::other)?;
        Ok(raw.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::decode;

    fn blob(raw: &[u8], pieces: usize) -> (BlobSummary, Vec<u8>) {
        let mut writer = BlobWriter::new(Vec::new(), Path::new("memory"), BlockSize::MIN);
        for piece in raw.chunks(pieces) {
            writer.append(piece).unwrap();
        }
        writer.finish().unwrap()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut raw = vec![0; bytes];
        blake3::Hasher::new().finalize_xof().fill(&mut raw);
        raw
    }

    #[test]
    fn every_block_can_be_read_back() {
        let mut raw = noise(300_000);
        raw[70_000..210_000].fill(0);
        let (summary, blob) = blob(&raw, 1000);
        summary.check().unwrap();
        assert_eq!((summary.raw_size, summary.size), (300_000, blob.len() as u64));
        assert_eq!(summary.digest, OciDigest::of(&blob));
        let table =
            BlockTable::decode(&blob[summary.table_offset as usize..], &summary.root).unwrap();
        let mut back = Vec::new();
        for (index, entry) in table.entries().iter().enumerate() {
            let at = table.stored(index..index + 1);
            let stored = &blob[at.start as usize..at.end as usize];
            back.extend(decode(stored, entry, table.raw_of(index)).unwrap());
        }
        assert!(back == raw);
    }

    #[test]
    fn the_blob_does_not_depend_on_the_size_of_writes() {
        let raw = noise(400_000);
        assert!(blob(&raw, 17).1 == blob(&raw, 400_000).1);
    }

    #[test]
    fn an_empty_blob_is_a_footer() {
        let (summary, blob) = blob(&[], 1);
        summary.check().unwrap();
        assert_eq!(blob.len(), crate::block::FOOTER_BYTES);
        assert_eq!(BlockTable::decode(&blob, &summary.root).unwrap().entries(), []);
    }
}
