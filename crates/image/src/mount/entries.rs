//! Replies about a tree of files: their attributes, names and amounts.

use super::protocol::{FOREVER, Reply};
use crate::erofs::{Amounts, Inode, UNIT};

/// Bytes of a name's own fields, and of what says where its file is.
const NAME_BYTES: usize = 24;
const ENTRY_BYTES: usize = 40;
const ATTRIBUTE_BYTES: usize = 88;
/// The longest name (NAME_MAX).
const LONGEST_NAME: u32 = 255;

/// A file as the kernel knows it.
pub(super) struct Seen<'a> {
    /// Its number in this mount.
    pub node: u64,
    /// The one that users see.
    pub number: u64,
    pub inode: &'a Inode,
}

/// The reply to `lookup`; without a file, that there is none holds for ever too.
pub(super) fn entry(seen: Option<&Seen<'_>>) -> Vec<u8> {
    let mut reply = Reply::default();
    put_entry(&mut reply, seen);
    reply.0
}

/// The reply to `getattr`.
pub(super) fn attributes(seen: &Seen<'_>) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.u64(FOREVER).u32(0).u32(0);
    put_attributes(&mut reply, seen);
    reply.0
}

/// The reply to `statfs`: all is used.
pub(super) fn statistics(amounts: &Amounts) -> Vec<u8> {
    let mut reply = Reply::default();
    // Blocks, free ones twice; files, free ones.
    reply.u64(amounts.blocks).u64(0).u64(0).u64(amounts.inodes).u64(0);
    // Size of a block, longest name, size of what blocks count, nothing.
    reply.u32(UNIT as u32).u32(LONGEST_NAME).u32(UNIT as u32).u32(0);
    reply.0.resize(80, 0);
    reply.0
}

/// The reply to `readdir` and `readdirplus`, as long as the kernel has room for.
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

    /// Whether a name of this length goes in.
    pub fn has_room(&self, name: &[u8]) -> bool {
        let entry = if self.with_attributes { ENTRY_BYTES + ATTRIBUTE_BYTES } else { 0 };
        let bytes = (entry + NAME_BYTES + name.len()).next_multiple_of(8);
        self.reply.0.len() + bytes <= self.room
    }

    /// Adds a name of the file `number`, of a type of stat(2); `next` is where the next listing
    /// begins. Without a file the kernel looks it up when it needs it.
    pub fn add(&mut self, name: &[u8], kind: u32, number: u64, next: u64, seen: Option<&Seen<'_>>) {
        if self.with_attributes {
            put_entry(&mut self.reply, seen);
        }
        self.reply.u64(number).u64(next).u32(name.len() as u32).u32(kind);
        self.reply.0.extend(name);
        self.reply.0.resize(self.reply.0.len().next_multiple_of(8), 0);
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.reply.0
    }
}

fn put_entry(reply: &mut Reply, seen: Option<&Seen<'_>>) {
    let node = seen.map_or(0, |seen| seen.node);
    // Number, generation, how long name and attributes hold, their parts of a second.
    reply.u64(node).u64(0).u64(FOREVER).u64(FOREVER).u32(0).u32(0);
    match seen {
        Some(seen) => put_attributes(reply, seen),
        None => reply.0.resize(reply.0.len() + ATTRIBUTE_BYTES, 0),
    }
}

fn put_attributes(reply: &mut Reply, seen: &Seen<'_>) {
    let Inode { mode, size, uid, gid, mtime, links, .. } = seen.inode;
    reply.u64(seen.number).u64(*size).u64(size.div_ceil(UNIT as u64) * (UNIT as u64 / 512));
    // The time of the last change is all that an image knows.
    let seconds = mtime.seconds as u64;
    reply.u64(seconds).u64(seconds).u64(seconds);
    reply.u32(mtime.nanos).u32(mtime.nanos).u32(mtime.nanos);
    reply.u32(u32::from(*mode)).u32(*links).u32(*uid).u32(*gid);
    // Device, size of a block, flags.
    reply.u32(0).u32(UNIT as u32).u32(0);
}
