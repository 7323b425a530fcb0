//! Blocks from memory, the disk cache or a source; each is fetched once and verified.
//!
//! | part | file |
//! |---|---|
//! | stored blocks by their position in a table | `blocks` |
//! | blocks that are being fetched | `claims` |
//! | adjacent blocks returned as they arrive | `stream` |
//! | prefetch to the disk cache | `prefetch` |
//! | decompression of the frames that are read | `frames` |
//! | small LRU caches in memory | `memory` |
//! | blobs whose source failed a read for as long as a read may take | `failed_reads` |

mod blocks;
mod claims;
mod failed_reads;
mod frames;
mod memory;
mod prefetch;
mod stream;

pub use blocks::{BlockStore, FetchCounts};
pub(super) use prefetch::{MAX_MORE, PrefetchTurns};
