//! Runs the tasks of queries on a host, and the agent that control talks to. A driver in a sandbox
//! is given the files, functions and workers that its query may have, here and on other hosts.
//!
//! Boundary: what a query does is decided in its driver (`query`), and which host has room in
//! `control`; how a sandbox is started, leased and taken again is decided below (`node`). No byte of
//! SQL, of a file or of a result is decoded here.
//!
//! Invariants: everything that a query holds on a host (sandboxes, outputs, room) ends with the
//! future that runs the query, or with the session that control has opened for it, whichever way
//! that ends. A task holds the room of all its sandboxes or of none. Each request of another host
//! has shown the token of the cluster.

pub mod agent;
mod bound;
mod drive;
mod footers;
mod gang_room;
mod limits;
mod nameless;
pub mod peers;
mod query_room;
mod read_rules;
pub mod relayed;
pub mod remote;
mod runner;
mod runner_errors;
mod stored_code;
mod task_host;
mod task_room;
mod times;

pub use bound::{UdfBinding, UdfImage, UdfSource};
pub use drive::{Driver, DriverReporter, Frames, clean, definition};
pub use limits::WorkerLimits;
pub use runner::QueryRunner;
pub use task_host::TaskHost;
