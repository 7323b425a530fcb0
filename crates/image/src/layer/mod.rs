//! Layers of OCI images: a compressed tar stream to a list of changes and a blob of file contents.
//!
//! | part | file |
//! |---|---|
//! | gzip, zstd or plain | `unpress` |
//! | members of a tar stream, with long names and extended headers | `archive`, `pax` |
//! | members to changes, contents to the blob | `read` |
//! | how large anything may be | `limits` |
//!
//! Invariant: the result depends on the uncompressed bytes of the layer and the block size alone,
//! so that images which share a layer share its blob.

mod archive;
mod limits;
mod pax;
mod read;
mod unpress;

pub(crate) use archive::Archive;
pub use limits::Limits;
pub use read::{Layer, read_layer};
pub(crate) use unpress::is_pressed;
pub use unpress::unpress;
