//! Whole blobs, read through their tables.
//!
//! | part | file |
//! |---|---|
//! | any raw bytes of a blob | `reader` |
//! | complete blobs as files | `completion`, `raw_files` |
//! | stored bytes for another host | `stored_bytes` |

mod completion;
mod raw_files;
mod reader;
mod stored_bytes;

pub use raw_files::{LockedFiles, RawFiles};
pub use reader::BlobReader;
