//! The install cache (SOCK, sections 3.2 and 4.3): Python packages are resolved, fetched and
//! unpacked once, addressed by content, and shared read-only by all sandboxes. The unit is the
//! wheel: sets of packages that contain the same wheel share its files, on disk and in memory.
//!
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `error` | errors of this crate |
//! | `storage` | the folders of the store, locks, files that are written once |
//! | `wheels` | requirements, wheels, wheels that users upload |
//! | `python` | interpreters, the resolver, the platform's own Python files |
//! | `environments` | the steps from requirements to an environment |
//! | `maintenance` | sizes, repeated verification, removal |
//! | `options`, `installer` | the main interface: environments with leases |
//!
//! Invariant: a folder under `wheels/` or `environments/` is complete. It was verified and flushed
//! to the disk under `tmp/` and then renamed. Nowhere else does the existence of a folder imply
//! that an installation has finished.

mod environments;
mod error;
mod installer;
mod maintenance;
mod options;
mod python;
mod storage;
mod wheels;

pub use environments::{
    Environment, InstallCounts, InstallProgress, Pinned, Reporter, Silent, WheelConflict,
};
pub use error::Error;
pub use installer::Installer;
pub use maintenance::{Damaged, EnvironmentLease, Reclaimed};
pub use options::Options;
pub use python::{
    OLDEST_PYTHON, Python, Runtime, Uv, WantedPython, python_requirement, runtime_files,
};
pub use storage::interrupted;
pub use wheels::{Requirement, Wheel};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
