//! Leases of instances and workers: what is idle first, and the rest started in room that was
//! reserved for it.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use snowmelt_ledger::{Reservation, Use};
use snowmelt_types::Digest;

use crate::account::Rooms;
use crate::worker::Worker;
use crate::{Error, InstanceLease, InstanceLimits, Node, Result, Unit, WorkerLease, WorkerSpec};

/// Where what is started has its room from.
#[derive(Debug)]
pub(crate) enum Room {
    /// It is asked for now.
    Asked(Use),
    /// It was reserved before.
    Given(Rooms),
}

impl Node {
    /// An instance of user code: an idle or a prewarmed one if there is any, otherwise forked from
    /// a zygote or executed.
    pub async fn lease_instance(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
    ) -> Result<InstanceLease> {
        if let Some(lease) = self.lease_at_once(unit, limits) {
            return Ok(lease);
        }
        // What starts instances is large, and most calls need none of it.
        let mut leased = self.lease_instances(unit, limits, 1).boxed().await;
        leased.pop().unwrap_or(Err(Error::Wire(snowmelt_wire::Error::Closed)))
    }

    /// An instance that waits, for one call at a time: no other call shares its slots.
    pub(crate) fn lease_at_once(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
    ) -> Option<InstanceLease> {
        if limits.concurrency > 1 {
            return None;
        }
        let asked = Instant::now();
        let key = limits.key(&unit.digest);
        // A miss is counted where an instance is started.
        if self.inner.instances.count(&key) + self.inner.prewarmed.count(&key) == 0 {
            return None;
        }
        let (instance, start) = self.inner.waiting(&key)?;
        let (slot, _) = self.inner.slots.take(&key, 1);
        let (inner, whose) = (Arc::clone(&self.inner), (key, unit.tenant.clone()));
        let lease = InstanceLease::reserve(inner, whose, Arc::clone(limits), slot, asked);
        lease.slot().instance.set(instance).ok()?;
        Some(lease.begin(start))
    }

    /// So many leases at once; what has to be started is one request to the spawner. The failure
    /// of one is its own: where the host has no room for all, those for which there is room are
    /// started, and the rest fail with [`Error::NoRoom`]. Only one waits, if there is room for none.
    pub async fn lease_instances(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        count: usize,
    ) -> Vec<Result<InstanceLease>> {
        self.lease_many(unit, limits, count, Room::Asked(Use::Function)).await
    }

    /// As many leases as there is room for in `rooms`. Idle instances are taken first, and what was
    /// reserved for these is given back.
    pub(crate) async fn lease_in(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        rooms: Rooms,
    ) -> Vec<Result<InstanceLease>> {
        let count = rooms.each.len();
        self.lease_many(unit, limits, count, Room::Given(rooms)).await
    }

    async fn lease_many(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        count: usize,
        room: Room,
    ) -> Vec<Result<InstanceLease>> {
        let asked = Instant::now();
        let key = limits.key(&unit.digest);
        let (mut new, mut joined) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (slot, is_new) = self.inner.slots.take(&key, limits.concurrency);
            let (inner, limits) = (Arc::clone(&self.inner), Arc::clone(limits));
            let whose = (key.clone(), unit.tenant.clone());
            let lease = InstanceLease::reserve(inner, whose, limits, slot, asked);
            if is_new { new.push(lease) } else { joined.push(lease) }
        }
        let slots: Vec<_> = new.iter().map(|lease| Arc::clone(lease.slot())).collect();
        let mut filled = self.inner.fill(unit, limits, &key, &slots, room).await;
        let full = filled.iter().find_map(|one| match one {
            Err(Error::NoRoom(no_room)) => Some(no_room.clone()),
            _ => None,
        });
        for lease in &joined {
            filled.push(match &full {
                // It shares an instance for which there is no room, and must not wait for it here.
                Some(no_room) if lease.slot().instance.get().is_none() => {
                    Err(Error::NoRoom(no_room.clone()))
                }
                _ => self.inner.join(unit, limits, &key, lease.slot()).await,
            });
        }
        let leases = new.into_iter().chain(joined).zip(filled);
        leases.map(|(lease, start)| start.map(|start| lease.begin(start))).collect()
    }

    /// An idle query worker.
    pub(crate) fn idle_worker(&self, spec: &WorkerSpec, asked: Instant) -> Option<WorkerLease> {
        let key = spec.key();
        // A miss is counted where a worker is started.
        if self.inner.workers.count(&key) == 0 {
            return None;
        }
        self.take_worker(key, asked)
    }

    fn take_worker(&self, key: Digest, asked: Instant) -> Option<WorkerLease> {
        while let Some(worker) = self.inner.workers.take(&key) {
            if worker.is_alive() {
                let inner = Arc::clone(&self.inner);
                return Some(WorkerLease::new(inner, key, worker, false, asked));
            }
        }
        None
    }

    /// A query worker: idle if there is one, for which nothing more is reserved, and executed
    /// otherwise.
    pub(crate) async fn lease_worker(
        &self,
        spec: &WorkerSpec,
        room: Option<Reservation>,
        asked: Instant,
    ) -> Result<WorkerLease> {
        if let Some(idle) = self.take_worker(spec.key(), asked) {
            return Ok(idle);
        }
        let binary = &self.inner.options.worker_binary;
        if !binary.exists() {
            return Err(Error::QueryProgramMissing { path: binary.clone() });
        }
        let sandbox = spec.sandbox(binary);
        // Rare beside what is idle, and large.
        let sandbox = self.inner.spawner.start(sandbox).boxed().await?;
        let worker = Worker::new(sandbox, room)?;
        Ok(WorkerLease::new(Arc::clone(&self.inner), spec.key(), worker, true, asked))
    }
}
