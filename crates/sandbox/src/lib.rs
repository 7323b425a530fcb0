//! Lean sandboxes and Python zygotes (SOCK 3 and 4).
//!
//! The server process never forks. It sends requests to the *spawner*, a single-threaded helper
//! process that [`Spawner::launch`] starts and that clones, mounts and executes on request.
//! [`Spawner`] is the handle, [`Sandbox`] and [`Zygote`] are what its methods return, and
//! [`spawner_main`] is the main function of the helper.
//!
//! | process | module |
//! |---|---|
//! | the server | `client` |
//! | the spawner | `spawner`, and what it gives to sandboxes: `root`, `namespaces`, `policy` |
//! | both | `message`, `spec`, `cgroup`, `run_dir`, `times`, `error` |
//!
//! Neither process imports from the other's module.
//!
//! Invariant: whichever of the server, the spawner and a sandbox dies first, everything that
//! belongs to a sandbox is removed once the others have noticed, or at the latest by the next
//! [`sweep`].

mod cgroup;
mod client;
mod disabled_defences;
mod error;
mod fault;
mod message;
mod namespaces;
mod policy;
mod probe;
mod root;
mod run_dir;
mod spawner;
mod spec;
mod times;

pub use cgroup::unified_group;
pub use client::{
    NetworkNamespace, Options, Privileges, Sandbox, Spawner, SpawnerHealth, SpawnerProcess, Zygote,
    delegate, sweep,
};
pub use error::Error;
pub use message::{Imported, ZygoteReady};
pub use namespaces::NAMESPACES;
pub use policy::PlatformProcess;
pub use probe::{Probe, probe};
pub use root::root_of_image;
pub use run_dir::{clean_lane, remove as clean_run_dir};
pub use spawner::spawner_main;
pub use spec::{
    Base, Bind, CHANNEL_FD, ForkSpec, ImageBind, Limits, MAX_WRITABLE, MountedImage, Network,
    NetworkId, NetworkProgram, ProcessSettings, Root, SandboxSpec, SyscallPolicy, Total,
    ZygoteSpec, may_be_writable,
};

/// The result type of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
