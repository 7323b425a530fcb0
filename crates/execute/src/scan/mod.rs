//! The sources of files: granted descriptors, S3 and servers of HTTP.
//!
//! DataFusion's Parquet reader decodes the files; the requests are made here. The levels of
//! concurrency in Lambada 4.3 are:
//!
//! 1. The column chunks of a row group are requested at once; near ones are one request
//!    ([`Requests`]).
//! 2. The next row group is read while one is decoded (`row_groups`).
//! 3. Planning reads the footers of all files concurrently, and a task is sent those that it needs
//!    ([`Footers`]).
//! 4. Long ranges are split where there is nothing else to read.

mod congestion;
mod counters;
mod footer;
mod footers;
mod granted_files;
mod hedge;
mod http;
pub mod paths;
mod pruning;
mod ranges;
mod reader;
mod retry;
mod row_groups;
mod s3;
mod version;

pub use counters::{Counters, CountingStore};
pub use footer::{Footer, FooterError, decode_footer, fetch_footer, first_byte, read_footer};
pub use footers::{Footers, decode_sent};
pub use granted_files::GrantedFiles;
pub(crate) use http::HttpStore;
pub use pruning::{LeftGroups, Pruning};
pub use ranges::Requests;
pub use reader::{StoreFooters, with_own_parquet_reader};
pub use retry::with_retries;
pub(crate) use s3::open_bucket;
pub use s3::{S3Settings, is_http};
pub use version::{Versions, read_bytes};
