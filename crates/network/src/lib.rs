//! Job networks in constant time (Particle): on each host a job has one network namespace, one
//! end of an overlay and one contiguous part of the job's addresses, however many functions it
//! runs there.
//!
//! [`Networks`] is what a node has one of, [`JobNetwork`] is a job's network on its host. Control
//! decides who has which addresses and tells every host of the others ([`JobSpec`], [`Peer`]);
//! nothing is found out by asking around.
//!
//! Invariant: a network is whole or not there, and nothing of it outlives the node but a lease,
//! which the next [`Networks::open`] removes when the kernel is through.

mod counters;
mod egress;
mod error;
mod hold;
mod host;
mod job;
mod lease;
mod link;
mod listen;
mod namespace;
pub mod netlink;
mod networks;
mod prepare;
mod probe;
mod range;
mod ready;
mod remains;
mod route;
mod spec;
mod trace;

pub use counters::Counters;
pub use egress::{Allow, Egress};
pub use error::Error;
pub use job::{Hold, JobNetwork};
pub use lease::Lease;
pub use listen::{Listener, Transport};
pub use networks::{Networks, Options, PORT};
pub use prepare::Furnished;
pub use probe::{Probe, probe};
pub use range::{BadRange, Range, prefix_for};
pub use remains::{Remains, Unsent};
pub use spec::{Address, JobSpec, Peer, RESERVED};
pub use trace::Way;

/// What this crate's calls give.
pub type Result<T> = std::result::Result<T, Error>;
