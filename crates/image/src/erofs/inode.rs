//! What an inode of ours is, and where its content lies.
//!
//! Invariant: an inode of any other form is refused before anything that it says is used.

use super::format::{self, CHUNK_BYTES, Field, INODE_BYTES, Inode, Layout, NID_BYTES, UNIT};
use crate::tree::Extent;
use crate::{Error, Result};

/// PATH_MAX of Linux without its zero byte.
const LONGEST_LINK: u64 = 4095;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Folder,
    Fifo,
    Symlink,
    /// Its bytes are in a layer.
    File,
    /// A file without bytes.
    Empty,
}

/// The type and its layout fit, and the size is one that it may have.
pub(super) fn shape(inode: &Inode) -> Result<Shape> {
    Ok(match (inode.mode >> 12, inode.layout) {
        (0o04, Layout::Plain | Layout::Inline) => Shape::Folder,
        (0o01, _) => Shape::Fifo,
        (0o12, Layout::Plain | Layout::Inline) if inode.size <= LONGEST_LINK => Shape::Symlink,
        (0o10, Layout::Chunks) if inode.size > 0 => Shape::File,
        (0o10, Layout::Plain) if inode.size == 0 => Shape::Empty,
        _ => return Err(wrong("an inode is none of ours")),
    })
}

/// Where an inode lies.
pub(super) fn offset(nid: u64) -> Result<usize> {
    let offset = nid.checked_mul(NID_BYTES).and_then(|offset| usize::try_from(offset).ok());
    offset.ok_or_else(|| wrong("something lies behind its end"))
}

/// Where its attributes lie.
pub(super) fn xattr_offset(nid: u64) -> Result<usize> {
    let offset = offset(nid)?.checked_add(INODE_BYTES);
    offset.ok_or_else(|| wrong("something lies behind its end"))
}

/// Where the end of its content lies, if that is behind it.
pub(super) fn inline_offset(nid: u64, inode: &Inode) -> Result<usize> {
    let offset = xattr_offset(nid)?.checked_add(inode.xattr_bytes);
    offset.ok_or_else(|| wrong("something lies behind its end"))
}

/// Where its chunk index lies.
pub(super) fn chunk_offset(nid: u64, inode: &Inode) -> Result<usize> {
    let offset = inline_offset(nid, inode)?.checked_next_multiple_of(CHUNK_BYTES);
    offset.ok_or_else(|| wrong("something lies behind its end"))
}

/// The bytes of a file by its chunk index, and the layer that they are in.
pub(super) fn extent(inode: &Inode, chunk: &[u8], devices: &[u32]) -> Result<(Extent, usize)> {
    if inode.union != format::chunk_form(inode.size) {
        return Err(wrong("a file has several chunks"));
    }
    let (device, block) = (chunk.u16_at(2), chunk.u32_at(4));
    let layer = usize::from(device).checked_sub(1);
    let end = u64::from(block) + inode.size.div_ceil(UNIT as u64);
    match layer.and_then(|layer| Some((layer, *devices.get(layer)?))) {
        Some((layer, blocks)) if end <= u64::from(blocks) => {
            Ok((Extent { size: inode.size, block: u64::from(block) }, layer))
        }
        _ => Err(wrong("a file lies outside of its device")),
    }
}

/// The metadata part is none of ours.
pub(super) fn wrong(reason: &str) -> Error {
    Error::refused("the metadata part", reason)
}
