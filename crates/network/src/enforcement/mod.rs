//! Address enforcement: functions of a job share a namespace in which all their addresses are
//! local, so something has to ensure that each uses only its own (Particle 3.2).
//!
//! The rules are the same for both methods:
//!
//! - Binding the wildcard or the loopback address binds the function's own address. `localhost` is
//!   the function's own address, so other functions of the job can connect to what listens there.
//! - Binding the IPv6 wildcard with a dual-stack socket binds both of the function's addresses.
//! - Binding any other address fails with `EADDRNOTAVAIL`.
//! - A socket that connects, sends or listens without being bound uses the function's address.
//! - Connecting or sending to the wildcard or the loopback address goes to the function's own.
//! - There are only TCP and UDP sockets.
//!
//! [`cgroups`] enforces them by BPF programs on control groups of version 2; elsewhere [`notifier`]
//! does by answering system calls (a seccomp notifier).

mod addresses;
mod cgroups;
mod datagram;
mod dual_stack;
mod function;
mod layout;
mod message;
mod notifier;
mod pending_connections;
mod programs;
mod rules;
mod sockaddr;
mod sockets;

pub use cgroups::{Cgroups, verify_programs};
pub use dual_stack::DualStack;
pub use notifier::Notifier;
