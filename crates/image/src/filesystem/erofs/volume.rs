//! Reads a metadata part inode by inode, on demand.
//!
//! Invariant: as in [`super::read`], no input causes a panic or an endless loop. A malformed
//! structure fails the requests that need it, not others.

use std::ops::Range;

use tokio::sync::OnceCell;

use super::folder::{self, EntryName};
use super::format::{self, CHUNK_BYTES, Head, INODE_BYTES, Inode, InodeLayout, UNIT};
use super::inode::{self, InodeType, wrong};
use super::xattr;
use crate::Result;
use crate::filesystem::tree::{Extent, Xattrs};

/// A source of the bytes of a part of an image.
pub(crate) trait Bytes: Send + Sync {
    /// Returns the number of bytes.
    fn size(&self) -> u64;

    /// Reads the bytes of a range; the part of the range past the end is ignored.
    fn read(&self, range: Range<u64>) -> impl Future<Output = Result<Vec<u8>>> + Send;
}

/// A metadata part that is read on demand.
pub(crate) struct Volume<B> {
    bytes: B,
    layers: usize,
    head: OnceCell<Head>,
}

/// An inode with its number.
pub(crate) struct VolumeFile {
    pub nid: u64,
    pub inode: Inode,
    pub shape: InodeType,
}

/// Total sizes of an image.
pub(crate) struct Statistics {
    pub blocks: u64,
    pub inodes: u64,
}

impl<B: Bytes> Volume<B> {
    /// Makes a volume of the bytes of a metadata part. `layers` is the number of layers in the
    /// manifest.
    pub fn new(bytes: B, layers: usize) -> Self {
        Self { bytes, layers, head: OnceCell::new() }
    }

    /// Reads the inode number of the root.
    pub async fn root(&self) -> Result<u64> {
        Ok(u64::from(self.head().await?.root))
    }

    /// Reads the total sizes of the metadata part and the layers.
    pub async fn statistics(&self) -> Result<Statistics> {
        let head = self.head().await?;
        let blocks = head.devices.iter().chain([&head.blocks]).copied().map(u64::from).sum();
        Ok(Statistics { blocks, inodes: head.inodes })
    }

    /// Reads an inode.
    pub async fn file(&self, nid: u64) -> Result<VolumeFile> {
        let bytes = self.at(inode::offset(nid)?, INODE_BYTES).await?;
        let inode =
            Inode::decode(&bytes).ok_or_else(|| wrong("an inode has an unsupported form"))?;
        let shape = inode::shape(&inode)?;
        Ok(VolumeFile { nid, inode, shape })
    }

    /// Looks up the inode number of a name in a folder by binary search: names are sorted over all
    /// blocks.
    pub async fn lookup(&self, folder: &VolumeFile, wanted: &[u8]) -> Result<Option<u64>> {
        let mut low = 0;
        let mut high = self.blocks_of(folder)?;
        while low < high {
            let middle = low + (high - low) / 2;
            let block = self.block(folder, middle).await?;
            let names = names(&block)?;
            let first = names.first().map(|name| name.name);
            if first.is_some_and(|first| wanted < first) {
                high = middle;
                continue;
            }
            if let Some(found) = names.iter().find(|name| name.name == wanted) {
                return Ok(Some(found.nid));
            }
            low = middle + 1;
        }
        Ok(None)
    }

    /// Returns the number of blocks of a folder.
    pub fn blocks_of(&self, folder: &VolumeFile) -> Result<u64> {
        match folder.shape {
            InodeType::Folder => Ok(folder.inode.size.div_ceil(UNIT as u64)),
            _ => Err(wrong("a file is used as a folder")),
        }
    }

    /// Reads a block of content in the metadata part: names for [`names`], or the target of a link.
    pub async fn block(&self, file: &VolumeFile, index: u64) -> Result<Vec<u8>> {
        let outside = || wrong("an offset is past its end");
        let unit = UNIT as u64;
        let start = index.checked_mul(unit).ok_or_else(outside)?;
        let left = file.inode.size.checked_sub(start).ok_or_else(outside)?;
        let length = left.min(unit) as usize;
        if file.inode.layout == InodeLayout::Inline && left < unit {
            return self.at(inode::inline_offset(file.nid, &file.inode)?, length).await;
        }
        let at = u64::from(file.inode.union).checked_mul(unit);
        let at = at.and_then(|at| at.checked_add(start)).and_then(|at| usize::try_from(at).ok());
        self.at(at.ok_or_else(outside)?, length).await
    }

    /// Reads the extent of a file's bytes and its layer; `None` if the file has no bytes.
    pub async fn extent(&self, file: &VolumeFile) -> Result<Option<(Extent, usize)>> {
        if file.shape != InodeType::File {
            return Ok(None);
        }
        let chunk = self.at(inode::chunk_offset(file.nid, &file.inode)?, CHUNK_BYTES).await?;
        inode::extent(&file.inode, &chunk, &self.head().await?.devices).map(Some)
    }

    /// Reads all extended attributes of a file.
    pub async fn xattrs(&self, file: &VolumeFile) -> Result<Xattrs> {
        if file.inode.xattr_bytes == 0 {
            return Ok(Xattrs::new());
        }
        let bytes = self.at(inode::xattr_offset(file.nid)?, file.inode.xattr_bytes).await?;
        xattr::decode(&bytes).ok_or_else(|| wrong("attributes are malformed"))
    }

    async fn head(&self) -> Result<&Head> {
        let read = || async {
            let length = format::head_bytes(self.layers).max(UNIT);
            let head = format::head(&self.at(0, length).await?);
            let head = head.filter(|head| head.devices.len() == self.layers);
            head.ok_or_else(|| wrong("its superblock has an unsupported form"))
        };
        self.head.get_or_try_init(read).await
    }

    async fn at(&self, at: usize, length: usize) -> Result<Vec<u8>> {
        let end = (at as u64).checked_add(length as u64).filter(|end| *end <= self.bytes.size());
        let end = end.ok_or_else(|| wrong("an offset is past its end"))?;
        self.bytes.read(at as u64..end).await
    }
}

/// Decodes the names in a block of a folder.
pub(crate) fn names(block: &[u8]) -> Result<Vec<EntryName<'_>>> {
    folder::decode(block).ok_or_else(|| wrong("a folder is malformed"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use futures::executor::block_on;

    use super::*;
    use crate::filesystem::tree::{Attributes, FileKind, LinkTarget, NodeId, Tree};

    impl Bytes for &[u8] {
        fn size(&self) -> u64 {
            self.len() as u64
        }

        async fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
            Ok(self[range.start as usize..range.end as usize].to_vec())
        }
    }

    type Described = BTreeMap<PathBuf, (FileKind, Attributes, usize)>;

    /// Looks up every path, up to `most` of them.
    pub fn walk(image: &[u8], layers: usize, most: usize) -> Result<Described> {
        let volume = Volume::new(image, layers);
        let mut found = Described::new();
        let mut folders = vec![(PathBuf::from("/"), block_on(volume.root())?)];
        while let Some((path, nid)) = folders.pop() {
            let folder = block_on(volume.file(nid))?;
            for index in 0..volume.blocks_of(&folder)? {
                let block = block_on(volume.block(&folder, index))?;
                for name in names(&block)?.iter().filter(|name| !matches!(name.name, b"." | b".."))
                {
                    let below = path.join(std::ffi::OsStr::from_bytes(name.name));
                    let looked_up = block_on(volume.lookup(&folder, name.name))?;
                    assert!(most < usize::MAX || looked_up == Some(name.nid), "{below:?}");
                    let described = describe(&volume, name.nid)?;
                    if described.0 == FileKind::Folder {
                        folders.push((below.clone(), name.nid));
                    }
                    found.insert(below, described);
                }
            }
            if found.len() > most {
                break;
            }
        }
        Ok(found)
    }

    fn describe(volume: &Volume<&[u8]>, nid: u64) -> Result<(FileKind, Attributes, usize)> {
        let file = block_on(volume.file(nid))?;
        let (kind, layer) = match file.shape {
            InodeType::Folder => (FileKind::Folder, 0),
            InodeType::Fifo => (FileKind::Fifo, 0),
            InodeType::Symlink => {
                (FileKind::Symlink(LinkTarget(block_on(volume.block(&file, 0))?)), 0)
            }
            InodeType::Empty => (FileKind::File(Extent::default()), 0),
            InodeType::File => match block_on(volume.extent(&file))? {
                Some((extent, layer)) => (FileKind::File(extent), layer),
                None => (FileKind::File(Extent::default()), 0),
            },
        };
        let Inode { mode, uid, gid, mtime, .. } = file.inode;
        let xattrs = block_on(volume.xattrs(&file))?;
        Ok((kind, Attributes { mode: mode & 0o7777, uid, gid, mtime, xattrs }, layer))
    }

    /// Returns the entries of a tree that was read as a whole, by their paths.
    pub fn paths(tree: &Tree) -> Described {
        let mut found = Described::new();
        let mut folders: Vec<(PathBuf, NodeId)> = vec![("/".into(), Tree::ROOT)];
        while let Some((path, id)) = folders.pop() {
            for (name, child) in &tree.node(id).children {
                let below = path.join(std::ffi::OsStr::from_bytes(name));
                let node = tree.node(*child);
                found.insert(
                    below.clone(),
                    (node.kind.clone(), node.attributes.clone(), node.layer),
                );
                folders.push((below, *child));
            }
        }
        found
    }
}
