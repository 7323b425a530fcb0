//! Checks which inodes are accepted, and finds where their content is.
//!
//! Invariant: an inode of any other form is refused before its fields are used.

use super::field::Field;
use super::format::{self, CHUNK_BYTES, INODE_BYTES, Inode, InodeLayout, NID_BYTES, UNIT};
use crate::filesystem::tree::Extent;
use crate::{Error, Result};

/// Linux's PATH_MAX without the zero byte.
const MAX_LINK_BYTES: u64 = 4095;

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeType {
    Folder,
    Fifo,
    Symlink,
    /// A file whose bytes are in a layer.
    File,
    /// A file without bytes.
    Empty,
}

/// Returns the type of an inode. Refuses layouts and sizes that the type cannot have.
pub(super) fn shape(inode: &Inode) -> Result<InodeType> {
    Ok(match (inode.mode >> 12, inode.layout) {
        (0o04, InodeLayout::Plain | InodeLayout::Inline) => InodeType::Folder,
        (0o01, _) => InodeType::Fifo,
        (0o12, InodeLayout::Plain | InodeLayout::Inline) if inode.size <= MAX_LINK_BYTES => {
            InodeType::Symlink
        }
        (0o10, InodeLayout::Chunks) if inode.size > 0 => InodeType::File,
        (0o10, InodeLayout::Plain) if inode.size == 0 => InodeType::Empty,
        _ => return Err(wrong("an inode has an unsupported form")),
    })
}

/// Returns the offset of an inode.
pub(super) fn offset(nid: u64) -> Result<usize> {
    let offset = nid.checked_mul(NID_BYTES).and_then(|offset| usize::try_from(offset).ok());
    offset.ok_or_else(|| wrong("an offset is past its end"))
}

/// Returns the offset of an inode's extended attributes.
pub(super) fn xattr_offset(nid: u64) -> Result<usize> {
    let offset = offset(nid)?.checked_add(INODE_BYTES);
    offset.ok_or_else(|| wrong("an offset is past its end"))
}

/// Returns the offset of the inline end of the content.
pub(super) fn inline_offset(nid: u64, inode: &Inode) -> Result<usize> {
    let offset = xattr_offset(nid)?.checked_add(inode.xattr_bytes);
    offset.ok_or_else(|| wrong("an offset is past its end"))
}

/// Returns the offset of the chunk index.
pub(super) fn chunk_offset(nid: u64, inode: &Inode) -> Result<usize> {
    let offset = inline_offset(nid, inode)?.checked_next_multiple_of(CHUNK_BYTES);
    offset.ok_or_else(|| wrong("an offset is past its end"))
}

/// Returns the extent of a file according to its chunk index, and its layer.
pub(super) fn extent(inode: &Inode, chunk: &[u8], devices: &[u32]) -> Result<(Extent, usize)> {
    if inode.union != format::chunk_form(inode.size) {
        return Err(wrong("a file has several chunks"));
    }
    let device = chunk.u16_at(2);
    let block = chunk.u32_at(4);
    let layer = usize::from(device).checked_sub(1);
    let end = u64::from(block) + inode.size.div_ceil(UNIT as u64);
    match layer.and_then(|layer| Some((layer, *devices.get(layer)?))) {
        Some((layer, blocks)) if end <= u64::from(blocks) => {
            Ok((Extent { size: inode.size, block: u64::from(block) }, layer))
        }
        _ => Err(wrong("a file is outside of its device")),
    }
}

/// Returns the error for a metadata part that this crate cannot have written.
pub(super) fn wrong(reason: &str) -> Error {
    Error::refused("the metadata part", reason)
}
