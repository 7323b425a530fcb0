//! The server itself: its status, its figures, and its end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{NodeFigures, PoolStatus};

/// A running platform.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the binary.
    pub version: String,
    /// Process id of the server.
    pub pid: u32,
    /// When it started, in milliseconds since 1970.
    pub started_ms: u64,
    /// The socket that it serves.
    pub socket: String,
    /// Resident memory of server and spawner, in bytes.
    pub memory_bytes: u64,
    /// Queries that run now.
    pub queries: u32,
    /// Query workers alive: busy and idle.
    pub workers: [u32; 2],
    /// Instances of functions and UDFs alive: busy and idle.
    pub instances: [u32; 2],
    /// Zygotes alive.
    pub zygotes: u32,
    /// Functions deployed.
    pub functions: u32,
    /// The process that makes sandboxes; without it nothing runs.
    pub spawner: SpawnerHealth,
    /// The pool of hosts.
    pub pool: PoolStatus,
    /// Whether hosts read images from each other, and not each from the registry by itself.
    pub image_trees: bool,
}

/// What a platform counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// Queries that run now.
    pub queries: u32,
    /// Calls of functions that ended, by how.
    pub calls: CallFigures,
    /// Resident memory of server and spawner, in bytes.
    pub memory_bytes: u64,
    /// Instances, workers and caches.
    pub node: NodeFigures,
    /// Connections between hosts that were given up because data on them were damaged, by the host
    /// that sent them, or its address.
    #[serde(default)]
    pub damaged: BTreeMap<String, u64>,
}

/// Calls of functions since the platform started.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CallFigures {
    /// Under way.
    pub running: u64,
    /// Ended with a result.
    pub succeeded: u64,
    /// Ended with an error.
    pub failed: u64,
}

/// How the server is to end.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownRequest {
    /// How long what runs may go on, in milliseconds; absent: the usual time.
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

/// A copy of a platform's state.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Backup {
    /// The file, in the state folder of the server.
    pub file: String,
    /// Its size.
    pub bytes: u64,
}

/// What nothing uses is to be removed: of a tenant, or by an operator of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlatformPruneRequest {
    /// Only count it.
    pub dry_run: bool,
    /// Also remove results of asynchronous calls that are still to be kept.
    #[serde(default)]
    pub results: bool,
}

/// A part of the state from which something is removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrunedPart {
    /// `versions`, `results`, `files`, `code`, `packages`, `images`, `raw` or `blocks`.
    pub name: String,
    /// How many things.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Why nothing of it is removed.
    pub kept: Option<String>,
}

/// How the processes that make sandboxes are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SpawnerHealth {
    /// Their process ids; none while others are started in their place.
    pub processes: Vec<u32>,
    /// How often they died and others took their place.
    pub replaced: u32,
    /// Why no others could be started yet.
    pub failure: Option<String>,
}
