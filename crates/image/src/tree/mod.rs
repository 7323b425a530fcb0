//! The file system of an image as a value: what a layer changes, and the tree that all layers give.
//!
//! | part | file |
//! |---|---|
//! | names of entries, as they may stand in an archive | `path` |
//! | files, folders and links with their attributes | `inode` |
//! | layers put on each other | `apply`, `resolve` |
//!
//! Invariant: nothing here touches a file system. A path that leads out of the image leads nowhere,
//! because there is no outside.

mod apply;
mod inode;
mod path;
mod resolve;

pub use apply::{Node, NodeId, Tree};
pub use inode::{Attributes, Change, Entry, Extent, Kind, Target, Time, Xattrs};
pub use path::{EntryPath, MAX_NAME_BYTES};
