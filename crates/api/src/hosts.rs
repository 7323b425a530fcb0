//! Hosts of a cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ErrorReport, HostName};
use utoipa::ToSchema;

/// What a host has and does.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct HostFacts {
    /// Version of the binary.
    pub version: String,
    /// Cores.
    pub cores: u32,
    /// Memory that functions may have, in bytes.
    pub memory: u64,
    /// Ranks of jobs that are there now.
    pub ranks: u32,
    /// Tasks of queries that run there now.
    #[serde(default)]
    pub tasks: u32,
    /// Memory limits that instances of deployed functions may have together, in bytes.
    #[serde(default)]
    pub functions: u64,
    /// What `functions` lacks because of tasks of queries, in bytes.
    #[serde(default)]
    pub of_tasks: u64,
    /// Memory of all sandboxes together, in bytes.
    #[serde(default)]
    pub sandboxes: u64,
    /// What others than functions, ranks and tasks of queries have of `sandboxes`, in bytes.
    #[serde(default)]
    pub others: u64,
    /// Memory of the ranks that are there, in bytes: neither `memory` nor `functions` has it.
    #[serde(default)]
    pub reserved: u64,
    /// Bytes of limits of instances for which one byte is reserved.
    #[serde(default)]
    pub overcommit: u32,
    /// Hosts that sent wrong blocks of images to this one.
    pub expelled: Vec<HostName>,
    /// Connections that it gave up because data on them were damaged, by the address of the host at
    /// their other end.
    #[serde(default)]
    pub damaged: BTreeMap<String, u64>,
}

impl HostFacts {
    /// Whether a burst or tasks of queries run there.
    pub fn works(&self) -> bool {
        self.ranks > 0 || self.tasks > 0
    }
}

/// A host that is there.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostJoin {
    /// Its name, unique in the cluster.
    pub name: HostName,
    /// Where its agent listens.
    #[schema(value_type = Option<String>)]
    pub address: Option<SocketAddr>,
    /// What it has and does.
    pub facts: HostFacts,
}

/// A host in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HostSummary {
    /// Its name.
    pub name: HostName,
    /// Where its agent listens; absent for the host of control.
    #[schema(value_type = Option<String>)]
    pub address: Option<SocketAddr>,
    /// What it has and does.
    pub facts: HostFacts,
    /// Since it was heard of last, in milliseconds.
    pub heard_ms: u64,
    /// Calls of deployed functions that run on it; none where control has no other host.
    #[serde(default)]
    pub calls: u32,
    /// Whether it gets new work, and has functions.
    pub state: HostState,
}

/// Whether a host gets new work, and has functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// It gets some, and has deployed functions that were called lately, or runs something else.
    Active,
    /// It gets some, and has nothing.
    Free,
    /// It gets none, and what runs there goes on.
    Draining,
    /// It gets none, and no functions run there.
    Drained,
}

/// The pool of hosts of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// What starts and ends hosts: a program, or `static`.
    pub provider: String,
    /// Whether it starts and ends any.
    pub is_elastic: bool,
    /// There are at least so many hosts, control's own included.
    pub least: u32,
    /// There are at most so many.
    pub most: u32,
    /// Hosts that the provider runs or starts.
    pub provided: u32,
    /// Further hosts that waiting calls need.
    pub lacking: u32,
    /// Why the provider failed last, until it succeeds.
    pub failure: Option<ErrorReport>,
    /// After how many milliseconds it is asked again after that.
    pub retry_ms: Option<u64>,
}
