//! The room of a host that a query and its tasks hold; `task_room` says how they get it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use snowmelt_ledger::Reservation;
use snowmelt_node::{InstanceLease, InstanceRooms, WorkerLease};
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};

use crate::task_quota::TaskQuota;

/// The room that a query has on a host, beside the sandboxes of its tasks.
#[derive(Debug)]
pub(crate) struct QueryRoom {
    /// The room that the query keeps for one task; sandboxes that run in it have no reservations of
    /// their own.
    pub kept: Mutex<Option<Reservation>>,
    /// A semaphore with one permit once there is kept room; the task that runs in that room holds
    /// the permit.
    pub free: Arc<Semaphore>,
    /// The room of the instances that the driver calls itself, by the name of the UDF.
    pub own: Mutex<BTreeMap<String, Reservation>>,
    /// The turn to wait for room. One task of a query waits for room of the host, and the query's
    /// other tasks wait for the turn: so two queries take turns, however many tasks they have.
    pub turn: AsyncMutex<()>,
    pub waiting: AtomicUsize,
    /// The quota of the query's tenant; `None` where none counts.
    pub quota: Option<Arc<dyn TaskQuota>>,
}

impl Default for QueryRoom {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            free: Arc::new(Semaphore::new(0)),
            own: Mutex::default(),
            turn: AsyncMutex::default(),
            waiting: AtomicUsize::new(0),
            quota: None,
        }
    }
}

/// The origin of a sandbox of a task.
#[derive(Debug)]
pub(crate) enum SandboxOrigin<Lease, New> {
    /// The sandbox was idle.
    Idle(Lease),
    /// The sandbox is started in this room.
    New(New),
}

/// Everything that a task needs of the host.
#[derive(Debug)]
pub(crate) struct TaskRoom {
    pub worker: SandboxOrigin<WorkerLease, Option<Reservation>>,
    /// The instances of the task's UDFs, in the order of the UDFs.
    pub udfs: Vec<SandboxOrigin<InstanceLease, InstanceRooms>>,
    pub kept: Option<RoomPermit>,
}

/// The permit of a task to run in the kept room of its query.
#[derive(Debug)]
pub(crate) struct RoomPermit(#[expect(dead_code, reason = "held only")] pub OwnedSemaphorePermit);

/// A count of a task that waits, until it is dropped.
pub(crate) struct QueueCount<'q>(pub &'q AtomicUsize);

impl Drop for QueueCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
