//! Job networks in constant time (Particle): on each host a job has one network namespace, one
//! end of an overlay and one contiguous part of the job's addresses, however many functions it
//! runs there.
//!
//! A node has one [`Networks`]; [`JobNetwork`] is a job's network on its host. Control assigns the
//! addresses and sends every host the parts of the others ([`JobSpec`], [`Peer`]); there is no
//! discovery.
//!
//! Invariant: a network exists completely or not at all, and only its lease outlives the node. The
//! next [`Networks::open`] removes it when the kernel has removed the namespace.

mod contents;
mod counters;
mod egress;
mod enforcement;
mod error;
mod host;
mod job;
mod lease;
mod link;
mod listen;
mod namespace;
pub mod netlink;
mod networks;
mod policy;
mod prepare;
mod probe;
mod range;
mod ready;
mod route;
mod spec;
mod state;
mod trace;

pub use contents::{NamespaceContents, Unsent};
pub use counters::Counters;
pub use error::Error;
pub use job::{AddressEnforcement, JobNetwork};
pub use lease::Lease;
pub use listen::{Listener, Transport};
pub use networks::{Networks, Options, PORT};
pub use policy::{Allow, Egress};
pub use prepare::ConfiguredNamespace;
pub use probe::{Probe, probe};
pub use range::{BadRange, RESERVED, Range, prefix_for};
pub use spec::{Address, JobSpec, Peer};
pub use trace::TracedRoute;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
