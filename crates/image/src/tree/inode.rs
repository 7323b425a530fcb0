//! What a layer says about one path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::EntryPath;

/// Extended attributes by name; `security.capability` is one of them.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Since 1970, possibly before it.
    pub seconds: i64,
    /// Below a second.
    pub nanos: u32,
}

/// What every file has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The twelve bits of permissions, set-id and sticky.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change.
    pub mtime: Time,
    /// Extended attributes.
    pub xattrs: Xattrs,
}

/// Where the bytes of a file are: one run in the blob of its layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes of the file.
    pub size: u64,
    /// Where the run begins, in units of 4096 raw bytes; 0 for an empty file.
    pub block: u64,
}

/// What a file is. Device nodes do not occur: a sandbox has its own `/dev`, and mounts that are
/// `nodev` would not let them work anyway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A regular file.
    File(Extent),
    /// A symbolic link and where it points.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
}

/// What a layer does with a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Puts a file there; a folder that is there keeps what is in it.
    Put(Kind, Attributes),
    /// Gives the file at the other path this name too.
    Link(EntryPath),
    /// Hides what lower layers have there.
    Hide,
    /// Hides what lower layers have in the folder there.
    HideContent,
}

/// One line of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where.
    pub path: EntryPath,
    /// What.
    pub change: Change,
}
