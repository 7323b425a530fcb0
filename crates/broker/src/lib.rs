//! The rights of root, for a server that has given them up.
//!
//! The server starts as root, starts its spawner and a *broker*, and becomes an ordinary user. What
//! it may not do any more it asks of the broker, a process of a few hundred lines that stays root.
//!
//! | part | file |
//! |---|---|
//! | requests of fixed size, and their answers | `message` |
//! | the server's handle, one for the process | `client` |
//! | the broker's process | `process` |
//! | which processes may be killed | `targets` |
//! | a process that opens files as the user of a connection | `file_process` |
//!
//! Invariant: a request has eight bytes and at most two descriptors, and is read without allocation.
//! No request carries a path, a command or a user: paths and commands are those of the start, and
//! users are read from the connections of clients, as the kernel reports them. So a server that has
//! been taken over can end its own sandboxes and read files of users who are connected to it, and
//! nothing else (decision 083).

mod client;
mod file_process;
mod message;
mod process;
mod targets;

pub use client::{Broker, BrokerProcess};
pub use file_process::FileService;
pub use message::{BrokerSetup, StartedDaemon};
pub use process::broker_main;
