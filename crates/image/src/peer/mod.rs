//! Blocks from other hosts of a cluster, and to them: the hosts that use an image are a tree, and
//! only its root reads from the registry (FaaSNet, sections 3.2 to 3.5).
//!
//! | part | file |
//! |---|---|
//! | requests and answers on a connection | `protocol` |
//! | another host: its connections, and what it did wrong | `host` |
//! | how fast hosts and the registry send, and the limit for children | `transfer_rates` |
//! | which host each blob is read from, and how many bytes came | `upstreams` |
//! | the root of another stripe, which may have what a root would read from the registry | `stripe_root` |
//! | the source of blocks: another host first, the registry where that fails | `source` |
//! | a source that is one host, for what is in no registry | `host_source` |
//! | the serving side: blocks of the images that this host has a place for | `exports` |
//!
//! How a connection is opened is the caller's matter ([`Connect`]). Blocks travel compressed, as
//! the registry sent them.
//!
//! Invariant: another host can delay a block by at most [`Patience`], and cannot forge one: the
//! reader verifies each, and what a host sent wrong costs it its place for good.

mod exports;
mod host;
mod host_source;
mod protocol;
mod source;
mod stripe_root;
mod transfer_rates;
mod upstreams;

pub use exports::{ExportProgress, Exports};
pub use host::{Connect, LinkDamage, Patience, PeerHost, PeerLink};
pub use host_source::HostSource;
pub use source::PeerSource;
pub use upstreams::{Flow, Upstreams};
