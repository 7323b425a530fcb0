//! Where the bytes of Parquet files come from: granted descriptors and S3.
//!
//! What decodes them is DataFusion's Parquet reader. Of the four levels of concurrency that
//! Lambada 4.3 names it has: metadata of a file read once and cached for its other parts; all
//! column chunks of a row group asked for in one call, which on S3 merges near ranges and fetches
//! the rest concurrently; the next file opened while the present one is decoded. Row groups of one
//! file are fetched one after the other.

mod counters;
mod granted;
mod paths;
mod retry;
mod s3;
pub(crate) mod s3_error;
mod version;

pub(crate) use counters::{Counters, CountingStore};
pub(crate) use granted::GrantedFiles;
pub(crate) use paths::{file_path, local_path, object_path};
pub(crate) use retry::with_retries;
pub(crate) use s3::{S3Settings, open_bucket};
pub(crate) use version::{Versions, changed};
