//! The install cache (SOCK 3.2 and 4.3): Python packages are resolved, fetched and unpacked once,
//! by content, and shared read-only by every sandbox from then on. The unit is the wheel: sets of
//! packages that have one in common share its files, on disk and in memory.
//!
//! | step | file |
//! |---|---|
//! | check what the user asked for | `requirement` |
//! | find the interpreter and the resolver | `python`, `uv` |
//! | requirements to a lock: exact versions with hashes | `resolve`, `lock` |
//! | wheels of users' own, by content | `own` |
//! | a pin to a wheel, verified, compiled, published by one rename | `unpack`, `record`, `wheel` |
//! | wheels to an environment of links | `assemble`, `link` |
//! | made once, by whoever comes first | `once`, `flock` |
//! | hand it out, with a lease that keeps it | `installer`, `environment` |
//! | count, measure, verify again, take back the space | `counts`, `shelf`, `verify`, `reclaim` |
//! | the platform's own Python files | `runtime` |
//!
//! Invariant: a folder under `wheels/` or `environments/` is whole. It was verified and flushed to the disk under
//! `tmp/` and then renamed; "the folder exists" is never taken for "the installation ended"
//! anywhere else.

mod assemble;
mod blocking;
mod counts;
mod environment;
mod error;
mod files;
mod flock;
mod installer;
mod link;
mod lock;
mod once;
mod options;
mod own;
mod process;
mod progress;
mod python;
mod reclaim;
mod record;
mod requirement;
mod resolve;
mod runtime;
mod shelf;
mod store;
mod unpack;
mod uv;
mod verify;
mod wheel;
mod workspace;

pub use counts::InstallCounts;
pub use environment::{Environment, Pinned};
pub use error::Error;
pub use installer::Installer;
pub use link::Conflict;
pub use options::Options;
pub use progress::{Progress, Reporter, Silent};
pub use python::{OLDEST_PYTHON, Python};
pub use reclaim::Reclaimed;
pub use requirement::{Requirement, parse_requirements};
pub use runtime::{Runtime, runtime_files};
pub use store::interrupted;
pub use uv::Uv;
pub use verify::Damaged;
pub use wheel::Wheel;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
