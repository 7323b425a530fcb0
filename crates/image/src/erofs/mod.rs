//! The metadata of an image as an EROFS file system whose file contents lie on other devices, one
//! for each layer.
//!
//! | part | file |
//! |---|---|
//! | what the kernel reads: superblock, devices, inodes, chunks | `format` |
//! | folders to blocks of names | `folder` |
//! | extended attributes | `xattr` |
//! | where each inode comes to lie | `plan` |
//! | the bytes, and back | `write`, `read` |
//! | one inode at a time, by whoever needs it | `volume` |
//! | what an inode may be, for both readers | `inode` |
//!
//! The kernel is the reader of mounted images; its mount on a file is the conformance test. Invariant: equal trees
//! give equal bytes, and no structure that must not cross a block does.

mod folder;
mod format;
mod inode;
mod plan;
mod read;
mod volume;
mod write;
mod xattr;

pub(crate) use format::Inode;
pub use format::UNIT;
pub(crate) use inode::Shape;
pub use read::read;
pub(crate) use volume::{Amounts, Bytes, File, Volume, names};
pub use write::write;
pub(crate) use xattr::prefix as xattr_prefix;
