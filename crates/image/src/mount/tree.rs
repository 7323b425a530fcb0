//! The files of an image, for kernels that cannot mount EROFS on files.
//!
//! A node number is an inode number of the metadata part, so a server that takes over needs no
//! state of its predecessor. All replies are valid for ever, because nothing changes: the kernel
//! does not repeat a lookup or read while it has the result in memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::entries::{self, FileInfo, Listing};
use super::failures::MountFailures;
use super::protocol::{self, FuseOperation, ROOT};
use super::server::{FuseAnswer, Serve};
use crate::filesystem::erofs::{Bytes, InodeType, UNIT, Volume, VolumeFile, names};
use crate::filesystem::tree::Extent;
use crate::read::BlobReader;
use crate::{Error, Result};

/// Flags: attributes in listings, ACLs that the kernel enforces, and cached link targets.
const WANTED: u32 = 1 << 13 | 1 << 14 | 1 << 20 | 1 << 23;
/// The kernel's read-ahead in bytes, as for EROFS.
const READ_AHEAD: u32 = 128 << 10;
/// The maximum number of cached extents.
const MAX_EXTENTS: usize = 4096;
/// The number of bits for the index of a name in its block, which has fewer than 4096 / 13 names.
const NAME_BITS: u32 = 9;

/// The tree of a mount: the image and the sources of its parts.
pub(super) struct MountTree<B> {
    volume: Volume<B>,
    layers: Vec<B>,
    failures: Arc<MountFailures>,
    /// Extents of files and their layers, cached because a file is usually read several times.
    extents: Mutex<HashMap<u64, (Extent, usize)>>,
}

impl Bytes for Arc<BlobReader> {
    fn size(&self) -> u64 {
        self.raw_size()
    }

    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        BlobReader::read(self, range).await
    }
}

impl<B: Bytes + 'static> Serve for MountTree<B> {
    fn answer_now(&self, operation: &FuseOperation) -> Option<FuseAnswer> {
        Some(match operation {
            FuseOperation::Init { flags } => Ok(protocol::init(*flags, WANTED, READ_AHEAD)),
            FuseOperation::Ignored => Ok(Vec::new()),
            // After this reply, the kernel opens and closes files and folders without a request,
            // and keeps their pages and names cached.
            FuseOperation::Open
            | FuseOperation::Flush
            | FuseOperation::Unknown
            | FuseOperation::NoReply => Err(Errno::NOSYS),
            _ => return None,
        })
    }

    async fn answer_async(&self, operation: FuseOperation) -> FuseAnswer {
        let answered = self.answer(&operation).await;
        answered.unwrap_or_else(|error| {
            tracing::error!(%error, ?operation, "a read from an image fails");
            self.failures.keep(error);
            Err(Errno::IO)
        })
    }
}

impl<B: Bytes> MountTree<B> {
    pub fn new(metadata: B, layers: Vec<B>, failures: Arc<MountFailures>) -> Self {
        let volume = Volume::new(metadata, layers.len());
        Self { volume, layers, failures, extents: Mutex::default() }
    }

    async fn answer(&self, operation: &FuseOperation) -> Result<FuseAnswer> {
        match operation {
            FuseOperation::Lookup { folder, name } => self.lookup(*folder, name).await,
            FuseOperation::GetAttributes { node } => {
                let file = self.file(*node).await?;
                Ok(Ok(entries::attributes(&file_info(*node, &file))))
            }
            FuseOperation::ReadLink { node } => self.target(*node).await,
            FuseOperation::Read { node, offset, size } => self.read(*node, *offset, *size).await,
            FuseOperation::List { node, offset, size, with_attributes } => {
                self.list(*node, *offset, Listing::new(*size, *with_attributes)).await
            }
            FuseOperation::GetXattr { node, size, name } => {
                let xattrs = self.volume.xattrs(&self.file(*node).await?).await?;
                let value = xattrs.get(name).ok_or(Errno::NODATA);
                Ok(value.and_then(|value| protocol::sized(value, *size)))
            }
            FuseOperation::ListXattrs { node, size, user } => {
                let xattrs = self.volume.xattrs(&self.file(*node).await?).await?;
                // Only the administrator may read these names.
                let visible =
                    xattrs.keys().filter(|xattr| *user == 0 || !xattr.starts_with(b"trusted."));
                let list: Vec<u8> =
                    visible.flat_map(|name| [name.as_slice(), &[0]].concat()).collect();
                Ok(protocol::sized(&list, *size))
            }
            FuseOperation::Statistics => {
                Ok(Ok(entries::statistics(&self.volume.statistics().await?)))
            }
            _ => Ok(Err(Errno::NOSYS)),
        }
    }

    async fn lookup(&self, folder: u64, name: &[u8]) -> Result<FuseAnswer> {
        let folder = self.file(folder).await?;
        let Some(nid) = self.volume.lookup(&folder, name).await? else {
            return Ok(Ok(entries::entry(None)));
        };
        let file = self.volume.file(nid).await?;
        Ok(Ok(entries::entry(Some(&file_info(nid, &file)))))
    }

    async fn target(&self, node: u64) -> Result<FuseAnswer> {
        let file = self.file(node).await?;
        match file.shape {
            InodeType::Symlink => Ok(Ok(self.volume.block(&file, 0).await?)),
            _ => Ok(Err(Errno::INVAL)),
        }
    }

    async fn read(&self, node: u64, offset: u64, size: u32) -> Result<FuseAnswer> {
        let Some((extent, layer)) = self.extent(node).await? else { return Ok(Ok(Vec::new())) };
        let end = offset.saturating_add(u64::from(size)).min(extent.size);
        let Some(layer) = self.layers.get(layer).filter(|_| offset < end) else {
            return Ok(Ok(Vec::new()));
        };
        let start = extent.block * UNIT as u64;
        let bytes = layer.read(start + offset..start + end).await?;
        // The kernel takes a short reply for the end of the file.
        if bytes.len() as u64 != end - offset {
            return Err(Error::damaged("a layer", "a file is outside of it"));
        }
        Ok(Ok(bytes))
    }

    /// Lists a folder from an offset on. An offset is a block and the index of a name in it, so
    /// that any server can continue a listing.
    async fn list(&self, node: u64, offset: u64, mut listing: Listing) -> Result<FuseAnswer> {
        let folder = self.file(node).await?;
        let mut skipped = (offset & ((1 << NAME_BITS) - 1)) as usize;
        for index in offset >> NAME_BITS..self.volume.blocks_of(&folder)? {
            let block = self.volume.block(&folder, index).await?;
            let names = names(&block)?;
            for (at, name) in names.iter().enumerate().skip(skipped) {
                if !listing.has_room(name.name) {
                    return Ok(Ok(listing.into_bytes()));
                }
                let is_last = at + 1 == names.len();
                let next = if is_last {
                    (index + 1) << NAME_BITS
                } else {
                    index << NAME_BITS | (at as u64 + 1)
                };
                let file = match name.name {
                    b"." | b".." => None,
                    _ if listing.with_attributes() => self.volume.file(name.nid).await.ok(),
                    _ => None,
                };
                let info = file.as_ref().map(|file| file_info(name.nid, file));
                listing.add(name.name, name.kind.of_stat(), name.nid, next, info.as_ref());
            }
            skipped = 0;
        }
        Ok(Ok(listing.into_bytes()))
    }

    async fn extent(&self, node: u64) -> Result<Option<(Extent, usize)>> {
        let known = self.extents.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied();
        if known.is_some() {
            return Ok(known);
        }
        let found = self.volume.extent(&self.file(node).await?).await?;
        let mut extents = self.extents.lock().unwrap_or_else(PoisonError::into_inner);
        if extents.len() >= MAX_EXTENTS {
            extents.clear();
        }
        extents.extend(found.map(|found| (node, found)));
        Ok(found)
    }

    async fn file(&self, node: u64) -> Result<VolumeFile> {
        let nid = if node == ROOT { self.volume.root().await? } else { node };
        self.volume.file(nid).await
    }
}

fn file_info(node: u64, file: &VolumeFile) -> FileInfo<'_> {
    FileInfo { node, number: file.nid, inode: &file.inode }
}
