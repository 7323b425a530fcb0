//! What a query and its tasks hold of the room of a host; `task_room` says how they get it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use snowmelt_ledger::Reservation;
use snowmelt_node::{InstanceLease, Rooms, WorkerLease};
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore};

/// What a query has of the host beside the sandboxes of its tasks.
#[derive(Debug)]
pub(crate) struct QueryRoom {
    /// The room of one task; what runs in it owns none of its own.
    pub kept: Mutex<Option<Reservation>>,
    /// One permit once there is such room: for the task that runs in it.
    pub free: Arc<Semaphore>,
    /// For the instances that the driver calls itself, by the name of the UDF.
    pub own: Mutex<BTreeMap<String, Reservation>>,
    /// One task of a query waits for room of the host, the others wait for that: so two queries
    /// take turns, however many tasks they have.
    pub turn: AsyncMutex<()>,
    pub waiting: AtomicUsize,
}

impl Default for QueryRoom {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            free: Arc::new(Semaphore::new(0)),
            own: Mutex::default(),
            turn: AsyncMutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }
}

/// Where a sandbox of a task comes from.
#[derive(Debug)]
pub(crate) enum Place<Lease, New> {
    /// It was idle.
    Idle(Lease),
    /// It is started in this room.
    New(New),
}

/// Everything that a task needs of the host.
#[derive(Debug)]
pub(crate) struct TaskRoom {
    pub worker: Place<WorkerLease, Option<Reservation>>,
    /// In the order of the task's UDFs.
    pub udfs: Vec<Place<InstanceLease, Rooms>>,
    pub kept: Option<Kept>,
}

/// The kept room of a query, as long as a task runs in it.
#[derive(Debug)]
pub(crate) struct Kept(#[expect(dead_code, reason = "held only")] pub OwnedSemaphorePermit);

/// Counts a task that waits.
pub(crate) struct Counted<'q>(pub &'q AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
