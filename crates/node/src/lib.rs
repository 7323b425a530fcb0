//! The agent on a host: it runs tasks and calls of functions in sandboxes, reuses idle ones, grants
//! them exactly the files and connections that they need, and reports why they ended.
//!
//! Boundary: what is to run is decided above (`control`, `query`); how a sandbox is made is decided
//! below (`sandbox`). Invariant: whatever is leased is either given back idle or destroyed, also
//! when the future that holds the lease is dropped.

mod account;
pub mod agent;
mod bound;
mod code;
mod code_package;
mod count;
pub mod doctor;
mod drive;
mod ending;
mod enforcement;
mod error;
mod figures;
mod footers;
mod function_files;
mod gang_room;
mod given;
mod images;
mod imports;
mod instances;
mod interpreters;
mod limits;
mod log;
mod machine;
mod nameless;
mod networks;
mod node;
mod packages;
mod pool;
mod preparation;
mod programs;
mod query_room;
mod read_rules;
mod readable_stream;
mod regular_file;
pub mod relayed;
pub mod remote;
mod runner;
mod runner_errors;
mod secrets;
mod shared_files;
mod task_room;
mod times;
mod unit;
mod workers;

pub use account::{OVERCOMMIT, capacity};
pub use bound::{UdfBinding, UdfImage, UdfSource};
pub use code::{CODE_KEPT, CodeStore, RemovedFiles};
pub use code_package::PackageAt;
pub use drive::{Driver, DriverReporter, Frames, clean, definition};
pub use enforcement::EnforcementChoice;
pub use error::Error;
pub use function_files::{FileStore, Receiving, UNUSED_KEPT};
pub use images::{
    Found, Origin as ImageOrigin, Settings as ImageSettings, Stores as ImageStores, TreePlace,
    Upstream, find_image, has_registry, image_daemon_main,
};
pub use instances::lease::InstanceLease;
pub use instances::run::CallEnd;
pub use limits::{InstanceLimits, MAX_ANSWER, WorkerLimits};
pub use log::LogText;
pub use machine::machine_memory;
pub use node::{Node, Options, Usage};
pub use pool::RemovalReason;
pub use programs::{Language, ProgramRequest};
pub use runner::QueryRunner;
pub use secrets::Secrets;
pub use shared_files::{file_tree, is_file_tree};
pub use snowmelt_ledger::{Capacity, Ledger};
pub use snowmelt_sandbox::{MAX_WRITABLE, may_be_writable};
pub use times::LOAD_LIMIT;
pub use unit::{Program, Unit};
pub use workers::lease::WorkerLease;
pub use workers::worker::WorkerSpec;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
