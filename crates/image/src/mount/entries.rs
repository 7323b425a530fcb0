//! Replies about the files of a tree: attributes, names and statistics.

use super::protocol::{FOREVER, Reply};
use crate::filesystem::erofs::{Inode, Statistics, UNIT};

/// The bytes of a directory entry's fixed fields, and of the node's entry in `readdirplus`.
const NAME_BYTES: usize = 24;
const ENTRY_BYTES: usize = 40;
const ATTRIBUTE_BYTES: usize = 88;
/// The maximum length of a name (NAME_MAX).
const MAX_NAME_BYTES: u32 = 255;

/// The attributes of a file that the kernel requests.
pub(super) struct FileInfo<'a> {
    /// The node number in this mount.
    pub node: u64,
    /// The inode number that users see.
    pub number: u64,
    pub inode: &'a Inode,
}

/// Encodes the reply to `lookup`. The kernel caches it for ever, also if there is no file.
pub(super) fn entry(info: Option<&FileInfo<'_>>) -> Vec<u8> {
    let mut reply = Reply::default();
    put_entry(&mut reply, info);
    reply.0
}

/// Encodes the reply to `getattr`.
pub(super) fn attributes(info: &FileInfo<'_>) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u64(FOREVER).u32(0).u32(0);
    put_attributes(&mut reply, info);
    reply.0
}

/// Encodes the reply to `statfs`: no space is free.
pub(super) fn statistics(statistics: &Statistics) -> Vec<u8> {
    let mut reply = Reply::default();
    // Blocks, free blocks, available blocks; files, free files.
    reply.u64(statistics.blocks).u64(0).u64(0).u64(statistics.inodes).u64(0);
    // Block size, maximum name length, fragment size, padding.
    reply.u32(UNIT as u32).u32(MAX_NAME_BYTES).u32(UNIT as u32).u32(0);
    reply.0.resize(80, 0);
    reply.0
}

/// The reply to `readdir` and `readdirplus`, limited to the kernel's buffer.
pub(super) struct Listing {
    reply: Reply,
    room: usize,
    with_attributes: bool,
}

impl Listing {
    pub fn new(room: u32, with_attributes: bool) -> Self {
        Self { reply: Reply::default(), room: room as usize, with_attributes }
    }

    pub fn with_attributes(&self) -> bool {
        self.with_attributes
    }

    /// Returns whether a name of this length fits.
    pub fn has_room(&self, name: &[u8]) -> bool {
        let entry = if self.with_attributes { ENTRY_BYTES + ATTRIBUTE_BYTES } else { 0 };
        let bytes = (entry + NAME_BYTES + name.len()).next_multiple_of(8);
        self.reply.0.len() + bytes <= self.room
    }

    /// Adds a name of the file `number`, with a type as in stat(2); `next` is the offset at which
    /// the next listing starts. Without `info`, the kernel looks the file up when needed.
    pub fn add(
        &mut self,
        name: &[u8],
        kind: u32,
        number: u64,
        next: u64,
        info: Option<&FileInfo<'_>>,
    ) {
        if self.with_attributes {
            put_entry(&mut self.reply, info);
        }
        self.reply.u64(number).u64(next).u32(name.len() as u32).u32(kind);
        self.reply.0.extend(name);
        self.reply.0.resize(self.reply.0.len().next_multiple_of(8), 0);
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.reply.0
    }
}

fn put_entry(reply: &mut Reply, info: Option<&FileInfo<'_>>) {
    let node = info.map_or(0, |info| info.node);
    // Node, generation, seconds for which name and attributes are valid, their nanoseconds.
    reply.u64(node).u64(0).u64(FOREVER).u64(FOREVER).u32(0).u32(0);
    match info {
        Some(info) => put_attributes(reply, info),
        None => reply.0.resize(reply.0.len() + ATTRIBUTE_BYTES, 0),
    }
}

fn put_attributes(reply: &mut Reply, info: &FileInfo<'_>) {
    let Inode { mode, size, uid, gid, mtime, links, .. } = info.inode;
    reply.u64(info.number).u64(*size).u64(size.div_ceil(UNIT as u64) * (UNIT as u64 / 512));
    // An image contains only the modification time.
    let seconds = mtime.seconds as u64;
    reply.u64(seconds).u64(seconds).u64(seconds);
    reply.u32(mtime.nanos).u32(mtime.nanos).u32(mtime.nanos);
    reply.u32(u32::from(*mode)).u32(*links).u32(*uid).u32(*gid);
    // Device, block size, flags.
    reply.u32(0).u32(UNIT as u32).u32(0);
}
