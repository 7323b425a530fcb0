//! The local files of a query's location (a file, a folder or a glob), and the version of each.
//!
//! This crate reads names and metadata only; it opens and parses no file. The server lists files
//! for query drivers, which have no access to paths, and the drivers apply the same rules to the
//! keys of buckets.

mod error;
mod find;
mod format;
mod names;
mod version;

pub use error::Error;
pub use find::find;
pub use format::{Compression, Format, Kind, common_format, retain_data};
pub use names::{MATCHING, READERS, glob_base, has_glob, is_hidden};
pub use version::{is_copy, version};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
