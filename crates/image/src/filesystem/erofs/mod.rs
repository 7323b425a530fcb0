//! The metadata of an image as an EROFS file system. File contents are on other devices, one per
//! layer.
//!
//! | part | file |
//! |---|---|
//! | on-disk structures: superblock, devices, inodes, chunks | `format` |
//! | folders as blocks of names | `folder` |
//! | extended attributes | `xattr` |
//! | positions of inodes | `plan` |
//! | encoding and decoding | `write`, `read` |
//! | reading single inodes on demand | `volume` |
//! | validation of inodes, for both readers | `inode` |
//!
//! Mounted images are read by the kernel; mounting a file is the conformance test. Invariant: equal
//! trees produce equal bytes, and no structure that must not cross a block boundary crosses one.

mod field;
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
pub(crate) use inode::InodeType;
pub use read::read;
pub(crate) use volume::{Bytes, Statistics, Volume, VolumeFile, names};
pub use write::write;
pub(crate) use xattr::prefix as xattr_prefix;
