//! The sandboxes of a host: this crate runs workers and instances of functions, reuses idle ones,
//! gives them exactly the files that they need, and reports why they ended.
//!
//! Boundary: the layers above (`control`, `tasks`) decide which work runs; the layer below
//! (`sandbox`) decides how a sandbox is made. Invariant: a leased worker or instance is either
//! given back idle or destroyed, also when the future that holds the lease is dropped.

pub mod doctor;
mod error;
pub mod files;
mod images;
mod import_cache;
mod instances;
mod namespaces;
mod networks;
mod node;
mod process;
mod resources;
mod times;
mod user_code;
mod workers;

pub use error::Error;
pub use files::code::{CODE_KEPT, CodeStore, RemovedFiles};
pub use files::function_files::{FileStore, Receiving, UNUSED_KEPT};
pub use files::shared_files::{FILE_BLOCKS, SharedFile, file_tree, is_file_tree};
pub use images::{
    BLOCKS as IMAGE_BLOCKS, ControlAddress, HeldImage, ImageOrigin, ImageSettings, ResolvedImage,
    Stores as ImageStores, TenantImages, TreePlace, Upstream, find_image, has_registry,
    image_daemon_main,
};
pub use instances::acquisition::Environment;
pub use instances::lease::InstanceLease;
pub use instances::ranks::PartRoom;
pub use instances::run::CallEnd;
pub use networks::enforcement::EnforcementChoice;
pub use networks::network::{HostRanks, PEERS, PEERS6, RankNetwork};
pub use networks::network_daemon_main;
pub use node::{Node, Options, Usage};
pub use process::limits::{InstanceLimits, MAX_ANSWER};
pub use process::log::LogText;
pub use process::secrets::Secrets;
pub use resources::account::{
    Account, FIRST_ZYGOTE, InstanceRooms, MayEnd, OVERCOMMIT, QUERY_PATIENCE, ZygoteRoom, capacity,
    zygote,
};
pub use resources::machine::machine_memory;
pub use resources::pool::RemovalReason;
pub use snowmelt_kernel::process::DaemonUser;
pub use snowmelt_ledger::{Capacity, Ledger};
pub use snowmelt_sandbox::{MAX_WRITABLE, may_be_writable};
pub use times::LOAD_LIMIT;
pub use user_code::code_package::{PackageAt, PackageSource};
pub use user_code::preparation::Preparation;
pub use user_code::programs::{Language, ProgramRequest};
pub use user_code::unit::{Program, Unit};
pub use workers::lease::WorkerLease;
pub use workers::worker::WorkerSpec;

/// The result of a function of this crate; the error is `Error` by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;
