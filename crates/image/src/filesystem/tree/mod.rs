//! The file system of an image as a data structure: the changes of layers, and the merged tree.
//!
//! | part | file |
//! |---|---|
//! | paths of entries in an archive | `path` |
//! | files, folders and links with their attributes | `inode` |
//! | merging of layers | `apply`, `resolve` |
//!
//! Invariant: this module does not access a file system. A path cannot lead out of the image,
//! because nothing else exists in the tree.

mod apply;
mod inode;
mod path;
mod resolve;

pub use apply::{FileNode, NodeId, Tree};
pub use inode::{Attributes, Extent, FileKind, LayerChange, LayerEntry, LinkTarget, Time, Xattrs};
pub use path::{EntryPath, MAX_NAME_BYTES};
