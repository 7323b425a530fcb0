//! Environments: requirements are resolved, their wheels unpacked, and linked in one folder.
//!
//! | member | job |
//! |---|---|
//! | `resolution`, `lock` | requirements to a lock: exact versions with hashes |
//! | `local_packages` | packages that are installed already beside the platform |
//! | `unpacking` | a pinned wheel: verified, compiled, published by one rename |
//! | `assembly`, `links` | an environment of links to wheels |
//! | `environment` | an environment with its manifest, and a lease that prevents its removal |
//! | `state`, `counts` | what the steps share, with hits and misses |
//! | `progress` | progress of an installation, for callers |
//!
//! Invariant: a folder gets its name when it is complete. It was made in a workspace before.

mod assembly;
mod counts;
mod environment;
mod links;
pub(crate) mod local_packages;
mod lock;
mod progress;
mod resolution;
mod state;
mod unpacking;

pub(crate) use assembly::{assemble, gather, lock_wheels};
pub(crate) use counts::EnvironmentCounters;
pub use counts::InstallCounts;
pub use environment::{Environment, Pinned};
pub(crate) use environment::{Manifest, digest_of};
pub use links::WheelConflict;
pub(crate) use lock::Pin;
pub use progress::{InstallProgress, Reporter, Silent};
pub(crate) use resolution::{remembered, resolve};
pub(crate) use state::InstallerState;
