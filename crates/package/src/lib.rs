//! The install cache (SOCK, sections 3.2 and 4.3): Python packages are resolved, fetched and
//! unpacked once, addressed by content, and shared read-only by all sandboxes. The unit is the
//! wheel: sets of packages that contain the same wheel share its files, on disk and in memory.
//!
//! | step | file |
//! |---|---|
//! | validation of requirements | `requirement` |
//! | discovery of the interpreter and the resolver | `python`, `uv` |
//! | an interpreter of another version than the platform's | `choice` |
//! | resolution of requirements to a lock: exact versions with hashes | `resolve`, `lock` |
//! | uploaded wheels, by content | `uploaded` |
//! | packages that came with the platform | `own`, `installed` |
//! | unpacking of a pinned wheel: verified, compiled, published by one rename | `unpack`, `record`, `wheel` |
//! | assembly of an environment of links to wheels | `assemble`, `link` |
//! | exclusion between tasks and processes, so that each folder is made once | `once`, `flock` |
//! | environments with leases that prevent their removal | `installer`, `environment` |
//! | counters, sizes, repeated verification, removal | `counts`, `inventory`, `verify`, `reclaim`, `prune` |
//! | the platform's own Python files | `runtime` |
//!
//! Invariant: a folder under `wheels/` or `environments/` is complete. It was verified and flushed
//! to the disk under `tmp/` and then renamed. Nowhere else does the existence of a folder imply
//! that an installation has finished.

mod archive;
mod assemble;
mod blocking;
mod choice;
mod counts;
mod environment;
mod error;
mod files;
mod flock;
mod installed;
mod installer;
mod inventory;
mod link;
mod lock;
mod name;
mod once;
mod options;
mod own;
mod process;
mod progress;
mod prune;
mod python;
mod reclaim;
mod record;
mod requirement;
mod resolve;
mod runtime;
mod shared;
mod store;
mod unpack;
mod uploaded;
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
pub use prune::Held;
pub use python::{OLDEST_PYTHON, Python, WantedPython, python_requirement};
pub use reclaim::Reclaimed;
pub use requirement::Requirement;
pub use runtime::{Runtime, runtime_files};
pub use store::interrupted;
pub use uv::Uv;
pub use verify::Damaged;
pub use wheel::Wheel;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
