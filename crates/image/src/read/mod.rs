//! Blocks on demand: fetched, verified, kept, decompressed (FaaSNet 3.5).
//!
//! | part | file |
//! |---|---|
//! | where stored bytes come from: the trait, and local folders | `source`, `local` |
//! | decorators: again, slower, a second one | `retry`, `limit`, `hedge` |
//! | stored blocks on the disk, by content, the one used longest ago evicted first | `cache`, `usage` |
//! | what other processes bring to them | `journal` |
//! | what was used last in memory, little | `recent` |
//! | decompressed where it is wanted | `frames` |
//! | ranges of a blob from all of these, each block once | `blocks`, `flight`, `blob` |
//! | neighbours handed out as they come | `streamed` |
//! | what will be wanted next, to the disk | `ahead` |
//! | blobs as files, once all of them is there | `complete`, `raw` |
//! | what every source must do | `conformance` |
//!
//! Invariant: what a source or the disk gives is compared with the table before anybody sees it; a
//! source can withhold a block and cannot forge one.

mod ahead;
mod blob;
mod blocks;
mod cache;
mod complete;
pub mod conformance;
mod flight;
mod frames;
mod hedge;
mod journal;
mod limit;
mod local;
mod raw;
mod recent;
mod retry;
mod source;
mod streamed;
mod usage;

pub use crate::profile::StartProfile;
pub use blob::BlobReader;
pub use blocks::{Blocks, Counts};
pub use cache::BlockCache;
pub use hedge::Hedged;
pub use limit::{Limited, Rate};
pub use local::LocalSource;
pub(crate) use local::outside;
pub use raw::{HeldFiles, RawFiles};
pub use retry::{Patience, Retried};
pub use source::{BlockSource, Pieces};
