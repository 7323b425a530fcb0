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
//!
//! The kernel is the reader of mounted images; its mount on a file is the conformance test. Invariant: equal trees
//! give equal bytes, and no structure that must not cross a block does.

mod folder;
mod format;
mod plan;
mod read;
mod write;
mod xattr;

pub use format::UNIT;
pub use read::read;
pub use write::write;
pub(crate) use xattr::prefix as xattr_prefix;
