//! Leases of instances: idle instances are taken first, and the rest is started in room that was
//! reserved for it.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use snowmelt_api::AnswerGuard;
use snowmelt_ledger::Use;
use snowmelt_types::Tenant;

use super::Instances;
use super::lease::InstanceLease;
use super::zygote_room::InstanceRoom;
use crate::resources::account::InstanceRooms;
use crate::{Error, InstanceLimits, Result, Unit};

impl Instances {
    /// Waits for memory for an answer of a tenant that comes from another host.
    pub async fn room_for_answer(&self, tenant: &Tenant, bytes: u64) -> Result<AnswerGuard> {
        self.answers.room(tenant, bytes).await.map(AnswerGuard::new)
    }

    /// Leases an instance of user code: an idle or a prewarmed one if there is any, otherwise one
    /// that is forked from a zygote or executed.
    pub async fn lease(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
    ) -> Result<InstanceLease> {
        if let Some(lease) = self.at_once(unit, limits) {
            return Ok(lease);
        }
        // The future that starts instances is large, and most calls need none of it.
        let mut leased =
            self.lease_many(unit, limits, 1, InstanceRoom::Asked(Use::Function)).boxed().await;
        leased.pop().unwrap_or(Err(Error::NOT_STARTED))
    }

    /// Leases an idle instance for one call at a time, so that no other call shares its slots;
    /// `None` if there is none.
    pub(crate) fn at_once(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
    ) -> Option<InstanceLease> {
        if limits.concurrency > 1 {
            return None;
        }
        let asked = Instant::now();
        let key = limits.key(&unit.digest);
        // A miss is counted where an instance is started.
        if self.idle.count(&key) + self.prewarmed.count(&key) == 0 {
            return None;
        }
        let (instance, start) = self.waiting(&key)?;
        let (slot, _) = self.slots.take(&key, 1);
        let instances = Arc::clone(self);
        let tenant = unit.tenant.clone();
        let lease = InstanceLease::reserve(instances, key, tenant, Arc::clone(limits), slot, asked);
        lease.slot().instance.set(instance).ok()?;
        Some(lease.begin(start))
    }

    /// Leases `count` instances; those that have to be started are one request to the spawner. Each
    /// lease fails or succeeds by itself: where the host has no room for all, those for which there
    /// is room are started, and the rest fail with [`Error::NoRoom`]. If there is room for none,
    /// one of them waits.
    pub async fn lease_all(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        count: usize,
    ) -> Vec<Result<InstanceLease>> {
        self.lease_many(unit, limits, count, InstanceRoom::Asked(Use::Function)).await
    }

    /// Leases `count` instances as `lease_all` does, but without waiting for room even if there is
    /// room for none.
    pub async fn lease_all_at_once(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        count: usize,
    ) -> Vec<Result<InstanceLease>> {
        if count == 1
            && let Some(lease) = self.at_once(unit, limits)
        {
            return vec![Ok(lease)];
        }
        self.lease_many(unit, limits, count, InstanceRoom::AtOnce(Use::Function)).boxed().await
    }

    /// Leases as many instances as there is room for in `rooms`. Idle instances are taken first,
    /// and the room that was reserved for them is given back.
    pub(crate) async fn lease_in(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        rooms: InstanceRooms,
    ) -> Vec<Result<InstanceLease>> {
        let count = rooms.each.len();
        self.lease_many(unit, limits, count, InstanceRoom::Given(rooms)).await
    }

    async fn lease_many(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        count: usize,
        room: InstanceRoom,
    ) -> Vec<Result<InstanceLease>> {
        let asked = Instant::now();
        let key = limits.key(&unit.digest);
        let mut joined = Vec::new();
        let mut new = Vec::new();
        for _ in 0..count {
            let (slot, is_new) = self.slots.take(&key, limits.concurrency);
            let instances = Arc::clone(self);
            let limits = Arc::clone(limits);
            let tenant = unit.tenant.clone();
            let key = key.clone();
            let lease = InstanceLease::reserve(instances, key, tenant, limits, slot, asked);
            if is_new { new.push(lease) } else { joined.push(lease) }
        }
        // Only new slots are filled here; who joined one waits for its first caller.
        let slots: Vec<_> = new.iter().map(|lease| Arc::clone(lease.slot())).collect();
        let waits = !matches!(room, InstanceRoom::AtOnce(_));
        let mut filled = self.fill(unit, limits, &key, &slots, room).await;
        let full = filled.iter().find_map(|one| match one {
            Err(Error::NoRoom(no_room)) => Some(no_room.clone()),
            _ => None,
        });
        for lease in &joined {
            filled.push(match &full {
                // This lease shares an instance for which there is no room, and must not wait for
                // it here.
                Some(no_room) if lease.slot().instance.get().is_none() => {
                    Err(Error::NoRoom(no_room.clone()))
                }
                _ => self.join(unit, limits, &key, lease.slot(), waits).await,
            });
        }
        let leases = new.into_iter().chain(joined).zip(filled);
        leases.map(|(lease, start)| start.map(|start| lease.begin(start))).collect()
    }
}
