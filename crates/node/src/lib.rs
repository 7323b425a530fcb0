//! The sandboxes of a host: this crate runs workers and instances of functions, reuses idle ones,
//! gives them exactly the files that they need, and reports why they ended.
//!
//! Boundary: the layers above (`control`, `tasks`) decide which work runs; the layer below
//! (`sandbox`) decides how a sandbox is made. Invariant: a leased worker or instance is either
//! given back idle or destroyed, also when the future that holds the lease is dropped.

mod account;
mod code;
mod code_package;
mod count;
pub mod doctor;
mod ending;
mod enforcement;
mod error;
mod figures;
mod function_files;
mod images;
mod imports;
mod instances;
mod interpreters;
mod limits;
mod log;
mod machine;
mod namespaces;
mod networks;
mod node;
mod pool;
mod preparation;
mod programs;
mod readable_stream;
pub mod regular_file;
mod secrets;
mod shared_files;
mod times;
mod unit;
mod workers;

pub use account::{
    Account, FIRST_ZYGOTE, MayEnd, OVERCOMMIT, QUERY_PATIENCE, Rooms, ZygoteRoom, capacity, zygote,
};
pub use code::{CODE_KEPT, CodeStore, RemovedFiles};
pub use code_package::PackageAt;
pub use enforcement::EnforcementChoice;
pub use error::Error;
pub use function_files::{FileStore, Receiving, UNUSED_KEPT};
pub use images::{
    BLOCKS as IMAGE_BLOCKS, Found, HeldImage, Origin as ImageOrigin, Settings as ImageSettings,
    Stores as ImageStores, TreePlace, Upstream, find_image, has_registry, image_daemon_main,
};
pub use instances::acquire::Environment;
pub use instances::lease::InstanceLease;
pub use instances::ranks::PartRoom;
pub use instances::run::CallEnd;
pub use limits::{InstanceLimits, MAX_ANSWER};
pub use log::LogText;
pub use machine::machine_memory;
pub use networks::network::{HostRanks, PEERS, PEERS6, RankNetwork};
pub use node::{Node, Options, Usage};
pub use pool::RemovalReason;
pub use programs::{Language, ProgramRequest};
pub use secrets::Secrets;
pub use shared_files::{FILE_BLOCKS, SharedFile, file_tree, is_file_tree};
pub use snowmelt_ledger::{Capacity, Ledger};
pub use snowmelt_sandbox::{MAX_WRITABLE, may_be_writable};
pub use times::LOAD_LIMIT;
pub use unit::{Program, Unit};
pub use workers::lease::WorkerLease;
pub use workers::worker::WorkerSpec;

/// The result of a function of this crate; the error is `Error` by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;
