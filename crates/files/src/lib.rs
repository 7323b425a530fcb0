//! Which local files a location of a query stands for (a file, a folder or a glob), and which
//! version of each was found.
//!
//! Boundary: names and metadata only; no file is opened or parsed here. The server lists files for
//! query drivers, which can open no path themselves, and the drivers apply the same rules to the
//! keys of buckets.

mod error;
mod find;
mod names;
mod version;

pub use error::Error;
pub use find::find;
pub use names::{MATCHING, glob_base, has_glob, is_hidden, is_parquet};
pub use version::version;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
