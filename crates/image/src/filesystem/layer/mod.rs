//! Layers of OCI images: converts a compressed tar stream to a list of changes and a blob of file
//! contents.
//!
//! | part | file |
//! |---|---|
//! | decompression of gzip and zstd | `decompress` |
//! | members of a tar stream, with long names and extended headers | `archive`, `pax` |
//! | converts members to changes, writes contents to the blob | `read` |
//! | size limits | `limits` |
//!
//! Invariant: the result depends only on the uncompressed bytes of the layer and the block size, so
//! that images which share a layer share its blob.

mod archive;
mod decompress;
mod limits;
mod pax;
mod read;

pub(crate) use archive::Archive;
pub use decompress::decompress;
pub(crate) use decompress::is_compressed;
pub use limits::LayerLimits;
pub use read::{Layer, read_layer};
