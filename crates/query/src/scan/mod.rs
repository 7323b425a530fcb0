//! The sources of files: granted descriptors and S3.
//!
//! DataFusion's Parquet reader decodes the files. Of the four levels of concurrency in Lambada 4.3
//! it has these: the metadata of a file is read once and cached for its other parts; all column
//! chunks of a row group are requested in one call, which on S3 merges near ranges and fetches the
//! rest concurrently; the next file is opened while the current one is decoded. Row groups of one
//! file are fetched sequentially.

mod counters;
mod granted;
mod paths;
mod retry;
mod s3;
pub(crate) mod s3_error;
mod version;

pub(crate) use counters::{Counters, CountingStore};
pub(crate) use granted::GrantedFiles;
pub(crate) use paths::{file_path, local_path, object_path, shown};
pub(crate) use retry::with_retries;
pub(crate) use s3::{S3Settings, open_bucket};
pub(crate) use version::{Versions, changed};
