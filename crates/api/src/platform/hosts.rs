//! Hosts of a cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ErrorReport, HostName};
use utoipa::ToSchema;

/// The resources of a host, and what runs there.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HostFacts {
    /// The version of the host's binary.
    pub version: String,
    /// The version of the protocol between control and hosts that it speaks; 0 if it says none.
    #[serde(default)]
    pub protocol: u32,
    /// The number of the host's cores.
    pub cores: u32,
    /// Memory that is left for ranks of bursts, in bytes.
    pub memory: u64,
    /// The number of ranks of bursts that are on the host now.
    pub ranks: u32,
    /// The number of tasks of queries that run on the host now.
    #[serde(default)]
    pub tasks: u32,
    /// Memory limits that instances of deployed functions may have together, in bytes.
    #[serde(default)]
    pub functions: u64,
    /// The part that `functions` lacks because of workers and UDFs of queries, in bytes of memory
    /// limits.
    #[serde(default)]
    pub of_tasks: u64,
    /// Memory that all sandboxes of the host may have together, in bytes.
    #[serde(default)]
    pub sandboxes: u64,
    /// The part of `sandboxes` that is reserved for neither functions nor ranks nor tasks of
    /// queries, in bytes: drivers, rooms kept for tasks, zygotes.
    #[serde(default)]
    pub others: u64,
    /// Memory that the host's ranks have reserved, in bytes. Neither `memory` nor `functions`
    /// contains it.
    #[serde(default)]
    pub reserved: u64,
    /// The number of bytes of instances' memory limits for which one byte is reserved.
    #[serde(default)]
    pub overcommit: u32,
    /// Hosts whose blocks of images this one refuses, because they sent wrong ones.
    pub expelled: Vec<HostName>,
    /// The number of connections that the host gave up because data on them were damaged, by the
    /// address of the host at their other end.
    #[serde(default)]
    pub damaged: BTreeMap<String, u64>,
}

impl HostFacts {
    /// Returns whether ranks of bursts or tasks of queries run on the host.
    pub fn works(&self) -> bool {
        self.ranks > 0 || self.tasks > 0
    }
}

/// A request for a token with which one host joins the cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinTokenRequest {
    /// The only host that may use the token, also in the place of one that is there; any new one if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<HostName>,
    /// How long the token lasts, in milliseconds, at most a day; 10 minutes if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// A token with which one host joins the cluster, once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JoinTokenMade {
    /// The text, which is shown this one time.
    pub token: String,
    /// The only host that may use it; `None` for any new one.
    pub name: Option<HostName>,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// A host that joins the cluster, or that says again that it is there. One of a newer version may
/// say more.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostJoin {
    /// The name of the host, unique in the cluster.
    pub name: HostName,
    /// The address at which the host's agent listens.
    #[schema(value_type = Option<String>)]
    pub address: Option<SocketAddr>,
    /// The resources of the host, and what runs there.
    pub facts: HostFacts,
}

/// A host in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostSummary {
    /// The name of the host.
    pub name: HostName,
    /// The address at which the host's agent listens; absent for the host of control.
    #[schema(value_type = Option<String>)]
    pub address: Option<SocketAddr>,
    /// The resources of the host, and what runs there.
    pub facts: HostFacts,
    /// Time since the host's last heartbeat, in milliseconds.
    pub heard_ms: u64,
    /// The number of calls of deployed functions that run on the host; 0 where control has no other
    /// host.
    #[serde(default)]
    pub calls: u32,
    /// Whether the host gets new work, and has functions.
    pub state: HostState,
}

/// Whether a host gets new work, and has functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// The host gets new work, and has deployed functions that were called lately, or runs
    /// something else.
    Active,
    /// The host gets new work, has no functions and runs nothing.
    Free,
    /// The host gets no new work, and what runs there goes on.
    Draining,
    /// The host gets no new work, and no functions run there.
    Drained,
}

/// The pool of hosts of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// The provider, which starts and ends hosts: a program, or `static`.
    pub provider: String,
    /// Whether the provider starts and ends any hosts.
    pub is_elastic: bool,
    /// The least number of hosts, control's own included.
    pub least: u32,
    /// The most hosts, control's own included.
    pub most: u32,
    /// The number of hosts that the provider runs or starts.
    pub provided: u32,
    /// The number of further hosts that waiting calls need; 0 where the pool is not elastic.
    pub lacking: u32,
    /// The last failure of the provider; absent once it succeeds.
    pub failure: Option<ErrorReport>,
    /// Time until the provider is asked again after a failure, in milliseconds.
    pub retry_ms: Option<u64>,
}
