//! The control plane: the HTTP gateway on a unix socket, queries, functions, and the store of what
//! was acknowledged. The same server runs inside `snowmelt sql` for one query and as `snowmelt up`.
//!
//! Boundary: it decides what runs and answers the clients; the node runs it. Invariant: everything
//! that was acknowledged is in the store; all other state can be lost and rebuilt.

mod analysis_cache;
mod answers;
mod async_calls;
pub mod backups;
mod bursts;
mod calls;
pub mod client;
mod cold;
mod declared;
mod durations;
mod functions;
mod gateway;
mod hidden;
pub mod hosts;
mod identity;
pub mod image_server;
pub mod images;
mod in_turn;
mod leases;
mod live;
mod logs;
pub mod member;
mod metrics;
pub mod offline_backup;
mod options;
pub mod permissions;
mod placements;
mod platform;
mod pool;
mod printed;
mod progress;
mod prune;
mod prunings;
mod queries;
mod records;
#[cfg(test)]
mod rig;
mod sent_files;
pub mod server;
mod shares;
mod shown_trees;
mod times;
pub mod tokens;
mod trees;
mod udfs;
mod wheels;

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since 1970.
fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
