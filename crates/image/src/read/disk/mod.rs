//! The disk cache of stored blocks by content, evicted in LRU order.
//!
//! | part | file |
//! |---|---|
//! | the cache of a tenant's and of public blocks | `cache` |
//! | the files of blocks, with an index in memory | `store`, `lru_index` |
//! | blocks that other processes add to the cache | `journal` |

mod cache;
mod journal;
mod lru_index;
mod store;

pub use cache::BlockCache;
