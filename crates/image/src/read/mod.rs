//! Blocks on demand: fetched, verified, cached, decompressed (FaaSNet, section 3.5). Rooms use
//! those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `sources` | sources of stored bytes, and how long a read takes at most |
//! | `disk` | the disk cache of stored blocks by content |
//! | `fetch` | blocks from memory, disk or source, each fetched once |
//! | `blobs` | ranges of a blob, complete blobs as files, stored bytes for another host |
//!
//! Invariant: bytes from a source or the disk are verified against the table before they are used.
//! A source can withhold a block but cannot forge one.

mod blobs;
mod disk;
mod fetch;
mod sources;

pub use blobs::{BlobReader, LockedFiles, RawFiles};
pub use disk::BlockCache;
pub use fetch::{BlockStore, FetchCounts};
pub use sources::{BlockSource, LocalSource, Pieces, Retried, RetryPolicy, conformance};
pub(crate) use sources::{deadline, outside};
