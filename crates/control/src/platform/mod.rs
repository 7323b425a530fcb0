//! The parts of a running platform, and what concerns several of them.
//!
//! | part | file |
//! |---|---|
//! | the parts, their figures and their state | here |
//! | removal of what nothing uses | `prune`, `prunings` |
//! | trees of the image and the files of a function, for display | `trees` |
//! | what one tenant sees of all this | `view` |
//!
//! Boundary: the gateway serves the parts; a server makes them.

pub(crate) mod prune;
pub(crate) mod prunings;
#[cfg(test)]
pub(crate) mod rig;
pub(crate) mod trees;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use snowmelt_api::{Figures, SpawnerHealth, Status};
use snowmelt_node::Node;
use snowmelt_store::etcd::LeadWatch;
use snowmelt_types::Tenant;
use tokio_util::sync::CancellationToken;

use crate::access::certificates::ServerCertificate;
use crate::bursts::Bursts;
use crate::cluster::authority::ClusterAuthority;
use crate::cluster::hosts::Hosts;
use crate::cluster::pool::HostPool;
use crate::functions::Functions;
use crate::functions::async_calls::AsyncCalls;
use crate::images::Images;
use crate::leases::Leases;
use crate::queries::Queries;
use crate::reports::audit::Audit;
use crate::reports::{Durations, Times};
use crate::state::disk::TenantDisk;
use crate::state::keys::Keys;
use crate::state::quotas::StoredQuotas;
use crate::udfs::UdfRegistry;
use prunings::Prunings;

/// The parts of a platform that the gateway serves.
#[derive(Debug)]
pub(crate) struct GatewayPlatform {
    pub node: Node,
    pub queries: Queries,
    pub functions: Functions,
    pub async_calls: AsyncCalls,
    pub udfs: UdfRegistry,
    pub bursts: Bursts,
    pub leases: Arc<Leases>,
    pub hosts: Hosts,
    /// The authority of the cluster; `None` if no hosts join, and without encryption.
    pub authority: Option<ClusterAuthority>,
    pub keys: Keys,
    pub quotas: StoredQuotas,
    pub disk: TenantDisk,
    pub audit: Audit,
    /// The certificate for clients on other hosts, if they are served.
    pub certificate: Option<ServerCertificate>,
    pub images: Images,
    pub pool: HostPool,
    pub prunings: Prunings,
    /// Asks the server to end.
    pub shutdown: CancellationToken,
    /// How long running work may go on after that.
    pub grace: Grace,
    /// True where the platform ends with its client.
    pub private: bool,
    pub socket: String,
    /// The lead of this control; `None` where the records are in the state folder.
    pub lead: Option<PlatformLead>,
    pub started_ms: u64,
}

/// The lead of a control among several that share a store.
#[derive(Debug)]
pub(crate) struct PlatformLead {
    /// The store in words.
    pub store: String,
    /// Whether this control leads.
    pub watch: LeadWatch,
}

/// A time that may be set until it is needed.
#[derive(Debug)]
pub(crate) struct Grace(AtomicU64);

impl Grace {
    pub fn new(time: Duration) -> Self {
        let grace = Self(AtomicU64::default());
        grace.set(time);
        grace
    }

    pub fn set(&self, time: Duration) {
        self.0.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

impl GatewayPlatform {
    /// Returns the counters of the platform.
    pub fn figures(&self) -> Figures {
        Figures {
            queries: self.queries.running(),
            calls: self.functions.calls(),
            memory_bytes: memory(&self.node.spawner()),
            node: self.node.figures(),
            damaged: self.hosts.damaged(),
            certificate_days: self.certificate.as_ref().and_then(ServerCertificate::days_left),
        }
    }

    /// Returns the durations of calls and queries: of all tenants, or of one.
    pub fn times(&self, of: Option<&Tenant>) -> Times {
        let by = |by: &'static str, durations: &Durations| {
            durations.read(of).into_iter().map(move |(series, times)| (by, series, times))
        };
        Times {
            calls: by("call", self.functions.durations())
                .chain(by("burst", self.bursts.durations()))
                .chain(by("lease", self.leases.durations()))
                .collect(),
            queries: self.queries.durations().read(of),
        }
    }

    async fn status(&self) -> Status {
        let usage = self.node.usage();
        let functions = self.functions.count().await;
        let spawner = self.node.spawner();
        Status {
            version: snowmelt_rpc::version().to_owned(),
            pid: std::process::id(),
            started_ms: self.started_ms,
            socket: self.socket.clone(),
            memory_bytes: memory(&spawner),
            queries: self.queries.running(),
            workers: usage.workers,
            instances: usage.instances,
            zygotes: usage.zygotes,
            functions,
            spawner,
            pool: self.pool.status(),
            image_trees: self.bursts.trees.are_of_images(),
            store: self.lead.as_ref().map_or_else(String::new, |lead| lead.store.clone()),
            certificate: self.certificate.as_ref().map(ServerCertificate::status),
        }
    }
}

/// Returns the resident memory of the server and of the spawner's first process, of which the
/// others are copies, in bytes.
fn memory(spawner: &SpawnerHealth) -> u64 {
    resident_bytes(std::process::id())
        + spawner.processes.first().copied().map_or(0, resident_bytes)
}

/// Returns the resident memory of a process, in bytes; 0 where the kernel does not report it.
fn resident_bytes(pid: u32) -> u64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
