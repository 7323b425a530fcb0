//! A UDF of a query, and the instances of the UDF that are requested together.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_api::FileRefs;
use snowmelt_ledger::Use;
use snowmelt_node::{Error, InstanceLease, InstanceLimits, InstanceRooms, Node, Secrets, Unit};
use snowmelt_types::Digest;
use snowmelt_wire::{Load, SourceCode};

/// A UDF of the query with what its instances need.
#[derive(Clone, Debug)]
pub struct UdfBinding {
    /// The name of the UDF in SQL.
    pub name: String,
    /// The prepared code and packages.
    pub unit: Unit,
    /// The limits of an instance.
    pub limits: Arc<InstanceLimits>,
    /// The request by which an instance loads the code.
    pub load: Load,
    /// The most time for one batch.
    pub timeout: Duration,
    /// The parts that another host needs to prepare the UDF; `None` if only this host can run it.
    pub source: Option<Arc<UdfSource>>,
}

/// A UDF as it is sent to other hosts.
#[derive(Clone, Debug)]
pub struct UdfSource {
    /// The code of the UDF.
    pub code: SourceCode,
    /// Requirements as pip writes them.
    pub packages: Vec<String>,
    /// Modules that the code imports.
    pub imports: Vec<String>,
    /// The image in which the UDF runs instead of with packages.
    pub image: Option<UdfImage>,
    /// Files that the UDF's instances see.
    pub files: FileRefs,
    /// Values of secrets that the UDF's instances have.
    pub secrets: Secrets,
}

/// The image of a UDF.
#[derive(Clone, Debug)]
pub struct UdfImage {
    /// The name of the image in a registry, with its digest.
    pub name: String,
    /// The name of the tree of hosts that read the image: the image's name as the user wrote it.
    pub tree: String,
    /// The code, which this host has stored.
    pub code: Digest,
}

/// A UDF, and the instances of it that the query's tasks need at first.
#[derive(Debug)]
pub(crate) struct BoundUdf {
    pub udf: UdfBinding,
    // Held while the burst is asked for: who comes meanwhile waits for a part of it.
    burst: tokio::sync::Mutex<Burst>,
}

/// Instances that are requested together, by the task that needs the first of them.
#[derive(Debug, Default)]
struct Burst {
    expected: usize,
    ready: Vec<snowmelt_node::Result<InstanceLease>>,
}

impl BoundUdf {
    pub fn new(udf: UdfBinding) -> Self {
        Self { udf, burst: tokio::sync::Mutex::default() }
    }

    /// Announces that one more task will call the UDF.
    pub fn expect(&self) {
        if let Ok(mut burst) = self.burst.try_lock() {
            burst.expected += 1;
        }
    }

    /// Takes an idle instance, for a task that then needs none of the burst.
    pub fn idle(&self, node: &Node) -> Option<InstanceLease> {
        let idle = node.idle_instance(&self.udf.unit, &self.udf.limits)?;
        if let Ok(mut burst) = self.burst.try_lock() {
            burst.expected = burst.expected.saturating_sub(1);
        }
        Some(idle)
    }

    /// Leases an instance out of the burst. A task that is run again gets an instance of its own,
    /// and so does one whose burst was given up together with the task that asked for it. The burst
    /// is for the expected tasks that can run now, `beside` this one: a task that gets an instance
    /// out of it no longer needs its own room.
    pub async fn lease(
        &self,
        node: &Node,
        mut rooms: InstanceRooms,
        beside: usize,
    ) -> snowmelt_node::Result<InstanceLease> {
        let UdfBinding { unit, limits, .. } = &self.udf;
        let mut burst = self.burst.lock().await;
        let expected = std::mem::take(&mut burst.expected);
        if expected > 0 {
            let most = beside.min(expected - 1);
            let ahead = node.account().ahead(&unit.tenant, limits, Use::Udf, most, None);
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
