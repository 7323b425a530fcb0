//! The control plane: the HTTP gateway on a unix socket, queries, functions, and the store of what
//! was acknowledged. The same server runs inside `snowmelt sql` for one query and as `snowmelt up`.
//!
//! Boundary: it decides what runs and answers the clients; the node runs it. Invariant: everything
//! that was acknowledged is in the store or, of asynchronous bursts, in the files that it names;
//! all other state can be lost and rebuilt.

pub mod access;
mod bursts;
pub mod client;
pub mod cluster;
mod functions;
mod gateway;
pub mod images;
mod leases;
mod platform;
mod queries;
mod reports;
pub mod server;
pub mod state;
mod times;
mod udfs;

pub use reports::audit::{AuditBreak, AuditCheck, AuditSettings, verify as verify_audit};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since 1970.
fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
