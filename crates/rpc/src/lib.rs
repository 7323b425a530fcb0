//! HTTP between the processes of Snowmelt: command line to control, control to hosts, hosts to
//! control.
//!
//! Owns one client, one server and one form of errors for all of them. Knows no routes and no
//! shapes of resources: those are in `snowmelt_api` and in the agent's API.
//!
//! All bytes between hosts are encrypted, or have checksums ([`HostStream`]).
//!
//! A request on a unix socket carries the user of its connection ([`Peer`]); what the user may do
//! is decided by the routes.
//!
//! Invariant: every refusal or failure crosses HTTP as a problem document (RFC 9457) made of an
//! [`ErrorReport`](snowmelt_types::ErrorReport), and every request has an identifier that both
//! sides log.

pub mod body;
mod body_timeout;
pub mod checksum_errors;
pub mod client;
mod endpoint;
mod fair_queue;
mod host_stream;
pub mod membership;
pub mod problem;
pub mod server;
pub mod tls;
pub mod trace;
pub mod upgrade;
mod version;

pub use client::{Client, Unanswered};
pub use endpoint::{Endpoint, HostTarget};
pub use host_stream::{Detached, FromHost, HostStream, ToHost};
pub use membership::token::{Admission, Token, admit, of_control};
pub use membership::{Credential, Meant};
pub use problem::Problem;
pub use server::Peer;
pub use trace::RequestId;
pub use version::{check_protocol, protocol, version};
