//! The install cache (SOCK 3.2 and 4.3): Python packages are resolved, fetched and unpacked once,
//! by content, and shared read-only by every sandbox from then on.
//!
//! | step | file |
//! |---|---|
//! | check what the user asked for | `requirement` |
//! | find the interpreter and the resolver | `python`, `uv` |
//! | requirements to a lock: exact versions with hashes | `resolve` |
//! | lock to a folder, verified, published by one rename | `install`, `record` |
//! | hand it out, with a lease that keeps it | `installer`, `environment` |
//! | take back the space | `reclaim` |
//! | the platform's own Python files | `runtime` |
//!
//! Invariant: a folder under `environments/` is whole. It was verified and flushed to the disk under
//! `tmp/` and then renamed; "the folder exists" is never taken for "the installation ended"
//! anywhere else.

mod environment;
mod error;
mod files;
mod flock;
mod install;
mod installer;
mod process;
mod progress;
mod python;
mod reclaim;
mod record;
mod requirement;
mod resolve;
mod runtime;
mod store;
mod uv;
mod workspace;

pub use environment::{Environment, Pinned};
pub use error::Error;
pub use installer::{Installer, Options};
pub use progress::{Progress, Reporter, Silent};
pub use python::{OLDEST_PYTHON, Python};
pub use reclaim::Reclaimed;
pub use requirement::{Requirement, parse_requirements};
pub use runtime::{Runtime, runtime_files};
pub use store::interrupted;
pub use uv::Uv;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
