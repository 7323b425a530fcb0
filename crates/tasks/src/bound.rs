//! A UDF of a query, and the instances of it that are asked for in one request.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::FileRefs;
use snowmelt_ledger::Use;
use snowmelt_node::{Error, InstanceLease, InstanceLimits, Node, Rooms, Secrets, Unit};
use snowmelt_types::Digest;
use snowmelt_wire::{Load, SourceCode};

/// A UDF of the query with what its instances need.
#[derive(Clone, Debug)]
pub struct UdfBinding {
    /// Its name in SQL.
    pub name: String,
    /// Code and packages.
    pub unit: Unit,
    /// Limits of an instance.
    pub limits: Arc<InstanceLimits>,
    /// How its code is loaded.
    pub load: Load,
    /// The most time for one batch.
    pub timeout: Duration,
    /// What another host needs to prepare it; `None` if only this host can run it.
    pub source: Option<Arc<UdfSource>>,
}

/// A UDF as it is sent to other hosts.
#[derive(Clone, Debug)]
pub struct UdfSource {
    /// Its code.
    pub code: SourceCode,
    /// Requirements as pip writes them.
    pub packages: Vec<String>,
    /// Modules that the code imports.
    pub imports: Vec<String>,
    /// The image that it runs in instead of with packages.
    pub image: Option<UdfImage>,
    /// Files that its instances see.
    pub files: FileRefs,
    /// Values that its instances have.
    pub secrets: Secrets,
}

/// The image of a UDF.
#[derive(Clone, Debug)]
pub struct UdfImage {
    /// Its name in a registry, with its digest.
    pub name: String,
    /// Its tree: the name as the user wrote it.
    pub tree: String,
    /// The code, which this host has stored.
    pub code: Digest,
}

/// A UDF, and the instances of it that the query's tasks need at first.
#[derive(Debug)]
pub(crate) struct Bound {
    pub udf: UdfBinding,
    // Held while the burst is asked for: who comes meanwhile waits for a part of it.
    burst: tokio::sync::Mutex<Burst>,
}

/// Instances that are asked for in one request, by the task that needs the first of them.
#[derive(Debug, Default)]
struct Burst {
    expected: usize,
    ready: Vec<snowmelt_node::Result<InstanceLease>>,
}

impl Bound {
    pub fn new(udf: UdfBinding) -> Self {
        Self { udf, burst: tokio::sync::Mutex::default() }
    }

    /// One more task will call it.
    pub fn expect(&self) {
        if let Ok(mut burst) = self.burst.try_lock() {
            burst.expected += 1;
        }
    }

    /// An idle instance, for a task that needs none of the burst then.
    pub fn idle(&self, node: &Node) -> Option<InstanceLease> {
        let idle = node.idle_instance(&self.udf.unit, &self.udf.limits)?;
        if let Ok(mut burst) = self.burst.try_lock() {
            burst.expected = burst.expected.saturating_sub(1);
        }
        Some(idle)
    }

    /// One of the burst; one of its own for a task that is run again, and where a burst was given
    /// up with the task that asked for it. The burst is for those of the expected tasks that can run
    /// now, `beside` this one: who gets one of it needs its own room no more.
    pub async fn lease(
        &self,
        node: &Node,
        mut rooms: Rooms,
        beside: usize,
    ) -> snowmelt_node::Result<InstanceLease> {
        let UdfBinding { unit, limits, .. } = &self.udf;
        let mut burst = self.burst.lock().await;
        let expected = std::mem::take(&mut burst.expected);
        if expected > 0 {
            let most = beside.min(expected - 1);
            let ahead = node.account().ahead(unit, limits, Use::Udf, (most, None));
            rooms.each.extend(ahead.each);
            burst.ready = node.lease_instances_in(unit, limits, std::mem::take(&mut rooms)).await;
        }
        let ready = burst.ready.pop();
        drop(burst);
        let lease = match ready {
            Some(lease) => Some(lease),
            None => node.lease_instances_in(unit, limits, rooms).await.pop(),
        };
        lease.unwrap_or(Err(Error::NOT_STARTED))
    }
}
