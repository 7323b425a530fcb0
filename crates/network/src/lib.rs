//! Job networks in constant time (Particle): on each host a job has one network namespace, one
//! end of an overlay and one contiguous part of the job's addresses, however many functions it
//! runs there.
//!
//! A node has one [`Networks`]; [`JobNetwork`] is a job's network on its host. Control assigns the
//! addresses and sends every host the parts of the others ([`JobSpec`], [`JobPeer`]); there is no
//! discovery. Rooms and files use those above them in this table only:
//!
//! | room or file | owns |
//! |---|---|
//! | `netlink` | messages to and from the kernel |
//! | `range`, `policy` | address ranges, and the destinations outside of a job |
//! | `error` | errors |
//! | `spec` | the specification of a job's network on one host, as control sends it |
//! | `devices` | devices, routes, and the namespaces that they are in |
//! | `inspection` | the actual state of a network |
//! | `preparation` | the configuration of a namespace that does not depend on its job |
//! | `egress` | packets of a job to the outside |
//! | `enforcement` | the addresses that functions may bind and connect to |
//! | `jobs` | the networks of jobs, from creation to removal |
//! | `daemon` | a process that makes networks for a node without the rights of root |
//! | `probe` | features of this machine that job networks need |
//!
//! Invariant: a network exists completely or not at all, and only its lease outlives the node. The
//! next [`Networks::open`] removes it when the kernel has removed the namespace.

mod daemon;
mod devices;
mod egress;
mod enforcement;
mod error;
mod inspection;
mod jobs;
pub mod netlink;
mod policy;
mod preparation;
mod probe;
mod range;
mod spec;

pub use daemon::{
    HostNetworks, NamespaceHandle, NetworkDaemon, NetworkHandle, NetworkReport, network_daemon_main,
};
pub use error::Error;
pub use inspection::{Counters, Listener, NamespaceContents, TracedRoute, Transport, Unsent};
pub use jobs::{AddressEnforcement, JobNetwork, Lease, Networks, Options, PORT};
pub use policy::{Allow, Egress};
pub use preparation::ConfiguredNamespace;
pub use probe::{Probe, probe};
pub use range::{BadRange, RESERVED, Range, prefix_for};
pub use spec::{Address, JobPeer, JobSpec};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
