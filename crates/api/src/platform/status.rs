//! The server itself: its status, its figures, and its end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_types::ErrorReport;
use utoipa::ToSchema;

use crate::{NodeFigures, PoolStatus};

/// A running platform.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of the binary.
    pub version: String,
    /// The process id of the server.
    pub pid: u32,
    /// When the server started, in milliseconds since 1970.
    pub started_ms: u64,
    /// The path of the unix socket that serves the API.
    pub socket: String,
    /// Resident memory of server and spawner, in bytes.
    pub memory_bytes: u64,
    /// The number of queries that run now.
    pub queries: u32,
    /// The numbers of query workers that are alive: busy and idle.
    pub workers: [u32; 2],
    /// The numbers of instances of functions and UDFs that are alive: busy and idle.
    pub instances: [u32; 2],
    /// The number of zygotes that are alive.
    pub zygotes: u32,
    /// The number of deployed functions.
    pub functions: u32,
    /// The health of the spawner, the process that makes sandboxes. Without it nothing runs.
    pub spawner: SpawnerHealth,
    /// The pool of hosts.
    pub pool: PoolStatus,
    /// Whether hosts read images from each other; false: each reads from the registry by itself.
    pub image_trees: bool,
    /// The store of records in words, and which control leads; empty for the file in the state
    /// folder.
    #[serde(default)]
    pub store: String,
    /// The certificate for clients on other hosts; absent if they are not served.
    #[serde(default)]
    pub certificate: Option<CertificateStatus>,
}

/// The certificate that clients on other hosts are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CertificateStatus {
    /// When the certificate ends, in milliseconds since 1970; absent if there is none yet.
    pub expires_ms: Option<u64>,
    /// The directory of the authority that is asked for certificates; absent if somebody else renews
    /// files.
    pub directory: Option<String>,
    /// When the next certificate is ordered, in milliseconds since 1970; absent if that is not for this
    /// control to do.
    pub order_ms: Option<u64>,
    /// The reason why the last order failed; absent if it did not.
    pub failure: Option<ErrorReport>,
}

/// The counters of a platform.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// The number of queries that run now.
    pub queries: u32,
    /// Numbers of calls of functions, by outcome.
    pub calls: CallFigures,
    /// Resident memory of server and spawner, in bytes.
    pub memory_bytes: u64,
    /// Instances, workers and caches.
    pub node: NodeFigures,
    /// Numbers of connections between hosts that were given up because data on them were damaged,
    /// by the host that sent the data, or its address.
    #[serde(default)]
    pub damaged: BTreeMap<String, u64>,
    /// The days until the certificate for clients on other hosts ends; absent if there is none.
    #[serde(default)]
    pub certificate_days: Option<f64>,
}

/// Numbers of calls of functions since the platform started.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CallFigures {
    /// Calls that are under way.
    pub running: u64,
    /// Calls that ended with a result.
    pub succeeded: u64,
    /// Calls that ended with an error.
    pub failed: u64,
}

/// A request to end the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownRequest {
    /// The time for which running work may go on, in milliseconds; absent: the usual time.
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

/// A copy of a platform's state.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Backup {
    /// The name of the file, in the state folder of the server.
    pub file: String,
    /// The size of the file in bytes.
    pub bytes: u64,
}

/// A request to remove data that nothing uses: of the tenant, or, by an operator, of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlatformPruneRequest {
    /// True to count the data and remove nothing.
    pub dry_run: bool,
    /// True to remove also results of asynchronous calls that are still to be kept.
    #[serde(default)]
    pub results: bool,
}

/// A part of the state from which something is removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrunedPart {
    /// The name of the part: `versions`, `results`, `files`, `code`, `packages`, `images`, `raw` or
    /// `blocks`.
    pub name: String,
    /// The number of items that are removed.
    pub items: u64,
    /// Bytes of the items.
    pub bytes: u64,
    /// The reason why nothing of the part is removed; absent where something may be.
    pub kept: Option<String>,
}

/// The health of the processes that make sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SpawnerHealth {
    /// The process ids; empty while other processes are started in the place of dead ones.
    pub processes: Vec<u32>,
    /// How often the processes died and others took their place.
    pub replaced: u32,
    /// The reason why no others could be started yet.
    pub failure: Option<String>,
}
