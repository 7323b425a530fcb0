//! Blocks on demand: fetched, verified, cached, decompressed (FaaSNet, section 3.5).
//!
//! | part | file |
//! |---|---|
//! | sources of stored bytes: the trait, and local folders | `source`, `local` |
//! | the decorator that retries | `retry` |
//! | how long a read takes at most | `deadline`, `failed_reads` |
//! | disk cache of stored blocks by content, evicted in LRU order | `cache`, `store`, `usage` |
//! | blocks that other processes add to the cache | `journal` |
//! | small LRU caches in memory | `recent` |
//! | decompression of the frames that are read | `frames` |
//! | ranges of a blob from all of these; each block is fetched once | `blocks`, `in_flight`, `blob` |
//! | adjacent blocks returned as they arrive | `streamed` |
//! | prefetch to the disk cache | `prefetch` |
//! | stored bytes for another host | `stored` |
//! | complete blobs as files | `complete`, `raw` |
//! | tests of the source trait | `conformance` |
//!
//! Invariant: bytes from a source or the disk are verified against the table before they are used.
//! A source can withhold a block but cannot forge one.

mod blob;
mod blocks;
mod cache;
mod complete;
pub mod conformance;
pub(crate) mod deadline;
mod failed_reads;
mod frames;
mod in_flight;
mod journal;
mod local;
mod prefetch;
mod raw;
mod recent;
mod retry;
mod source;
mod store;
mod stored;
mod streamed;
mod usage;

pub use blob::BlobReader;
pub use blocks::{Blocks, Counts};
pub use cache::BlockCache;
pub use local::LocalSource;
pub(crate) use local::outside;
pub use raw::{LockedFiles, RawFiles};
pub use retry::{Retried, RetryPolicy};
pub use source::{BlockSource, Pieces};
