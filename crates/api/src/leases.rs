//! Leases of instances, over a socket beside that of the API, with the ending `.lease`; and over a
//! connection of the API that is upgraded from HTTP (`GET /v1/leases`, `upgrade: snowmelt`), for
//! clients on other hosts, to which no descriptor can be passed.
//!
//! A connection carries one lease, in frames (`crates/wire/src/frames/frame.rs`):
//!
//! | who | frame | what |
//! |---|---|---|
//! | client | `Request`, [`LeaseRequest`] | asks for an instance |
//! | server | `Reply`, [`Leased`], with one descriptor | a socket that is connected to the instance, on which the function is loaded |
//! | server | `Failure`, `ErrorReport` | why not; the connection ends |
//! | client | `End` | returns the instance, which may be leased again |
//! | server | `End`, [`Returned`] or nothing | the instance was returned, and the socket is closed; what it has printed |
//! | server | `Failure`, `ErrorReport` | the instance has ended, and why; so does the connection |
//!
//! On the socket of a function the client sends `Call` and receives `Return` or `Failure`; on that of
//! a UDF it sends `Schema` and `Batch`, and receives the same. A connection that ends without `End`
//! gives the instance up: it is destroyed.
//!
//! On a cluster the instance may be on another host: then the socket leads to the server, which carries
//! what is sent.
//!
//! By the API there is no descriptor: the connection carries what would be sent on that socket, in
//! `Relayed` frames of both sides, until the client sends `End` or the server `Failure`. A frame
//! may end anywhere in these bytes: the receiver joins them.

use serde::{Deserialize, Serialize};
use snowmelt_types::{FunctionName, HostName, Tenant};

use crate::{Start, UdfSource};

/// Asks for an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// The tenant; absent: the tenant of the user of the connection.
    #[serde(default)]
    pub tenant: Option<Tenant>,
    /// The function or UDF that the instance runs.
    pub runs: LeaseOf,
    /// True if the instance is to be on the server's own host, because the client sends it
    /// descriptors.
    #[serde(default)]
    pub here: bool,
}

/// The end of a lease whose instance was returned, sent only if the instance has printed something.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Returned {
    /// The beginning of what the instance has printed during the lease.
    pub printed: String,
}

/// The function or UDF that a leased instance runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LeaseOf {
    /// A deployed function.
    Function(FunctionName),
    /// A UDF.
    Udf {
        /// The code that defines it.
        source: UdfSource,
        /// The name of the UDF in the code.
        name: String,
    },
    /// A UDF that is registered.
    Registered {
        /// The name of the registered UDF.
        name: String,
        /// The version of the UDF; absent: the latest.
        #[serde(default)]
        version: Option<u32>,
    },
}

/// An instance that the client has until the connection ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Leased {
    /// The source of the instance, such as a zygote.
    pub start: Start,
    /// True if a sandbox was started for the lease.
    pub cold: bool,
    /// The most time for one call or batch, in milliseconds. The client enforces it: a client that
    /// ends the connection ends what takes longer.
    pub timeout_ms: u64,
    /// The host of the instance; absent: the host of the server. The server carries bytes to
    /// another host, and no descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
}
