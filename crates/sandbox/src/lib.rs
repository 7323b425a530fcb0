//! Lean sandboxes and Python zygotes (SOCK 3 and 4).
//!
//! The server process never forks. It sends requests to the *spawner*, a single-threaded helper
//! process that [`Spawner::launch`] starts and that clones, mounts and executes on request.
//! [`Spawner`] is the handle, [`Sandbox`] and [`Zygote`] are what its methods return, and
//! [`spawner_main`] is the main function of the helper.
//!
//! Invariant: whichever of the server, the spawner and a sandbox dies first, everything that
//! belongs to a sandbox is removed once the others have noticed, or at the latest by the next
//! [`sweep`].

mod cgroup;
mod error;
mod fault;
mod handle;
mod instance;
mod lanes;
mod launch;
mod message;
mod namespaces;
mod network;
mod open;
mod policy;
mod probe;
mod reader;
mod registry;
mod replace;
mod request;
mod root;
mod run_dir;
mod spawner;
mod spec;
mod times;
mod weaken;

pub use cgroup::unified_group;
pub use error::Error;
pub use handle::{Options, Spawner, SpawnerProcess};
pub use instance::{Sandbox, Zygote};
pub use message::{Imported, ZygoteReady};
pub use namespaces::NAMESPACES;
pub use network::NetworkNamespace;
pub use probe::{Probe, probe};
pub use replace::SpawnerHealth;
pub use root::root_of_image;
pub use run_dir::sweep;
pub use spawner::spawner_main;
pub use spec::{
    Base, Bind, CHANNEL_FD, ForkSpec, ImageBind, Limits, MAX_WRITABLE, MountedImage, Network,
    NetworkId, NetworkProgram, Policy, ProcessSettings, Root, SandboxSpec, Total, ZygoteSpec,
    may_be_writable,
};

/// The result type of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
