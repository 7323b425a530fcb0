//! The files of an image, for kernels that mount no EROFS on files.
//!
//! A file's number is that of its inode in the metadata part, so a server that takes over knows it
//! without being told. All replies hold for ever, because nothing changes: what was looked up or
//! read once is never asked for again while the kernel has memory for it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::entries::{self, Listing, Seen};
use super::failures::Failures;
use super::protocol::{self, Ask, ROOT};
use super::server::{Answer, Serve};
use crate::erofs::{Bytes, File, Shape, UNIT, Volume, names};
use crate::read::BlobReader;
use crate::tree::Extent;
use crate::{Error, Result};

/// Attributes with names where somebody lists with attributes, ACLs that the kernel enforces, and
/// links that it keeps.
const WANTED: u32 = 1 << 13 | 1 << 14 | 1 << 20 | 1 << 23;
/// As far as the kernel reads ahead of EROFS.
const AHEAD: u32 = 128 << 10;
/// Places of files that are remembered.
const MOST_PLACES: usize = 4096;
/// Bits for a name's number in its block, in which there are fewer than 4096 / 13.
const NAME_BITS: u32 = 9;

/// The image, with what has the bytes of its parts.
pub(super) struct Tree<B> {
    volume: Volume<B>,
    layers: Vec<B>,
    failures: Arc<Failures>,
    /// Reads of a file come in a row.
    places: Mutex<HashMap<u64, (Extent, usize)>>,
}

impl Bytes for Arc<BlobReader> {
    fn size(&self) -> u64 {
        self.raw_size()
    }

    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        BlobReader::read(self, range).await
    }
}

impl<B: Bytes + 'static> Serve for Tree<B> {
    fn at_once(&self, ask: &Ask) -> Option<Answer> {
        Some(match ask {
            Ask::Init { flags } => Ok(protocol::init(*flags, WANTED, AHEAD)),
            Ask::Nothing => Ok(Vec::new()),
            // Told so once, the kernel opens and closes files and folders by itself from then on,
            // and keeps their pages and names.
            Ask::Open | Ask::Flush | Ask::Unknown | Ask::Silent => Err(Errno::NOSYS),
            _ => return None,
        })
    }

    async fn in_time(&self, ask: Ask) -> Answer {
        let answered = self.answer(&ask).await;
        answered.unwrap_or_else(|error| {
            tracing::error!(%error, ?ask, "a read from an image fails");
            self.failures.keep(error);
            Err(Errno::IO)
        })
    }
}

impl<B: Bytes> Tree<B> {
    pub fn new(metadata: B, layers: Vec<B>, failures: Arc<Failures>) -> Self {
        let volume = Volume::new(metadata, layers.len());
        Self { volume, layers, failures, places: Mutex::default() }
    }

    async fn answer(&self, ask: &Ask) -> Result<Answer> {
        match ask {
            Ask::Lookup { folder, name } => self.lookup(*folder, name).await,
            Ask::GetAttributes { node } => {
                let file = self.file(*node).await?;
                Ok(Ok(entries::attributes(&seen(*node, &file))))
            }
            Ask::ReadLink { node } => self.target(*node).await,
            Ask::Read { node, offset, size } => self.read(*node, *offset, *size).await,
            Ask::List { node, offset, size, with_attributes } => {
                self.list(*node, *offset, Listing::new(*size, *with_attributes)).await
            }
            Ask::GetXattr { node, size, name } => {
                let xattrs = self.volume.xattrs(&self.file(*node).await?).await?;
                let value = xattrs.get(name).ok_or(Errno::NODATA);
                Ok(value.and_then(|value| protocol::sized(value, *size)))
            }
            Ask::ListXattrs { node, size, user } => {
                let xattrs = self.volume.xattrs(&self.file(*node).await?).await?;
                // Names that only an administrator may read are nobody else's to see.
                let shown = xattrs.keys().filter(|it| *user == 0 || !it.starts_with(b"trusted."));
                let list: Vec<u8> = shown.flat_map(|it| [it.as_slice(), &[0]].concat()).collect();
                Ok(protocol::sized(&list, *size))
            }
            Ask::Statistics => Ok(Ok(entries::statistics(&self.volume.amounts().await?))),
            _ => Ok(Err(Errno::NOSYS)),
        }
    }

    async fn lookup(&self, folder: u64, name: &[u8]) -> Result<Answer> {
        let folder = self.file(folder).await?;
        let Some(nid) = self.volume.lookup(&folder, name).await? else {
            return Ok(Ok(entries::entry(None)));
        };
        let file = self.volume.file(nid).await?;
        Ok(Ok(entries::entry(Some(&seen(nid, &file)))))
    }

    async fn target(&self, node: u64) -> Result<Answer> {
        let file = self.file(node).await?;
        match file.shape {
            Shape::Symlink => Ok(Ok(self.volume.block(&file, 0).await?)),
            _ => Ok(Err(Errno::INVAL)),
        }
    }

    async fn read(&self, node: u64, offset: u64, size: u32) -> Result<Answer> {
        let Some((extent, layer)) = self.place(node).await? else { return Ok(Ok(Vec::new())) };
        let end = offset.saturating_add(u64::from(size)).min(extent.size);
        let Some(layer) = self.layers.get(layer).filter(|_| offset < end) else {
            return Ok(Ok(Vec::new()));
        };
        let start = extent.block * UNIT as u64;
        let bytes = layer.read(start + offset..start + end).await?;
        // What is short is taken for the end of the file by the kernel.
        if bytes.len() as u64 != end - offset {
            return Err(Error::damaged("a layer", "a file lies outside of it"));
        }
        Ok(Ok(bytes))
    }

    /// A listing begins at a block and the number of a name in it, whoever began it.
    async fn list(&self, node: u64, offset: u64, mut listing: Listing) -> Result<Answer> {
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
                let seen = file.as_ref().map(|file| seen(name.nid, file));
                listing.add(name.name, name.kind.of_stat(), name.nid, next, seen.as_ref());
            }
            skipped = 0;
        }
        Ok(Ok(listing.into_bytes()))
    }

    async fn place(&self, node: u64) -> Result<Option<(Extent, usize)>> {
        let known = self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied();
        if known.is_some() {
            return Ok(known);
        }
        let found = self.volume.extent(&self.file(node).await?).await?;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST_PLACES {
            places.clear();
        }
        places.extend(found.map(|found| (node, found)));
        Ok(found)
    }

    async fn file(&self, node: u64) -> Result<File> {
        let nid = if node == ROOT { self.volume.root().await? } else { node };
        self.volume.file(nid).await
    }
}

fn seen(node: u64, file: &File) -> Seen<'_> {
    Seen { node, number: file.nid, inode: &file.inode }
}
