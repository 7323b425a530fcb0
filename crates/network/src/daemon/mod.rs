//! Networks that another process makes: a node without the rights of root asks a daemon that has
//! those for networks, and no others.
//!
//! | part | file |
//! |---|---|
//! | requests and answers | `message` |
//! | the daemon's process, with its capabilities | `process` |
//! | the node's side | `client` |
//! | networks of this process or of a daemon, by one handle | `handle` |
//!
//! A node has one control connection to its daemon, and one connection for each network. The end of a
//! connection removes its network, so nothing outlives a node that was killed.
//!
//! Invariant: the daemon changes no namespace but fresh ones, and never that of the host or of another
//! service, whatever its node sends.

mod client;
mod handle;
mod message;
mod process;

pub use client::NetworkDaemon;
pub use handle::{HostNetworks, NamespaceHandle, NetworkHandle};
pub use message::NetworkReport;
pub use process::network_daemon_main;
