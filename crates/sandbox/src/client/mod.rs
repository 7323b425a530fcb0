//! The server's side: handles of the spawner, of its sandboxes and of networks, and what keeps the
//! spawner running.
//!
//! | part | file |
//! |---|---|
//! | the handle of the spawner | `handle` |
//! | the handles of a sandbox, a zygote and a network | `instance`, `network` |
//! | which lane makes a sandbox, further lanes, the replacement of a dead spawner | `lanes` |
//! | the start of the spawner's program, and what it answers | `launch`, `readiness` |
//! | pending requests and live sandboxes of a lane, and its reports | `registry`, `reader` |
//! | requests as packets | `request` |
//! | the process of a sandbox, and processes of the spawner | `process`, `pidfd` |
//! | the folder that names what is to be removed | `run_dir` |
//! | what takes the rights of root, for a server without them | `privileges` |
//!
//! Invariant: nothing here uses what the spawner does; the two have only messages and specs in
//! common.

mod handle;
mod instance;
mod lanes;
mod launch;
mod network;
mod pidfd;
mod privileges;
mod process;
mod reader;
mod readiness;
mod registry;
mod request;
mod run_dir;

pub use handle::{Spawner, SpawnerProcess};
pub use instance::{Sandbox, Zygote};
pub use lanes::SpawnerHealth;
pub use launch::Options;
pub use network::NetworkNamespace;
pub use privileges::{Privileges, delegate};
pub use run_dir::sweep;
