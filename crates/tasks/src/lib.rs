//! Runs the tasks of queries on a host, and the agent that control talks to. A driver in a sandbox
//! is given the files, functions and workers that its query may have, here and on other hosts.
//!
//! Boundary: what a query does is decided in its driver (`query`), and which host has room in
//! `control`; how a sandbox is started, leased and taken again is decided below (`node`). No byte
//! of SQL, of a file or of a result is decoded here.
//!
//! Invariants: everything that a query holds on a host (sandboxes, outputs, room) ends with the
//! future that runs the query, or with the session that control has opened for it, whichever way
//! that ends. A task holds the room of all its sandboxes or of none. Each request of another host
//! has shown the token of the cluster.
//!
//! Rooms and files use those above them in this table only:
//!
//! | room or file | owns |
//! |---|---|
//! | `file_service` | files that a process opens with the rights of a user |
//! | `file_rights` | the rights with which files of a query are opened |
//! | `task_quota` | how much the tasks of a query may use together |
//! | `peers` | hosts beside this one, and what hosts say and send to each other |
//! | `instance_relay` | the connection of an instance, carried in frames of another connection |
//! | `host` | a host of tasks, and the stores on its disk |
//! | `runner` | the tasks of one query in sandboxes, and the room that they hold |
//! | `remote` | tasks and leases on other hosts |
//! | `driver_service` | the platform's side of a query's driver |
//! | `agent` | the parts of jobs that run on this host |

pub mod agent;
mod driver_service;
mod file_rights;
mod file_service;
mod host;
pub mod instance_relay;
pub mod peers;
pub mod remote;
mod runner;
mod task_quota;

pub use driver_service::{Driver, DriverReporter, Frames, clean, definition};
pub use file_rights::FileRights;
pub use file_service::serve_files;
pub use host::TaskHost;
pub use runner::{QueryRunner, UdfBinding, UdfImage, UdfSource, WorkerLimits};
pub use task_quota::{SandboxSum, TaskQuota, TaskShare};
