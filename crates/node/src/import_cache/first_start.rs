//! The start of a first zygote, which may have to wait for a slot, or for another zygote to make
//! room.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::{Duration, Instant};

use snowmelt_ledger::{Reservation, Use};
use snowmelt_types::Tenant;
use tokio::time::timeout_at;

use super::admission::{Admitted, IdleZygote};
use super::state::{Inner, State};
use super::zygote_start::{Fresh, ZygoteSource};
use crate::resources::account::{self, ZygoteRoom};
use crate::times::SLOT_ASKED_EVERY;
use crate::{Error, Result};

/// How long a caller waits for the slot of a zygote: most calls end sooner.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the time until which a caller that needs a zygote now waits for its slot.
pub(super) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

impl Inner {
    /// Starts the first zygote of a scope, once there is a slot for it and room in the account.
    pub(super) async fn start_first(
        &self,
        tenant: &Tenant,
        source: &ZygoteSource,
        deadline: Instant,
        room: &ZygoteRoom,
    ) -> Result<Fresh> {
        // The room before the slot: a slot that is taken and not used would make other tenants
        // wait.
        let own = self.first_room(tenant, room)?;
        match self.start_in_slot(tenant, source, deadline).await {
            Ok(Fresh { member, us }) => Ok(Fresh { member: member.owning(own), us }),
            Err(error) => {
                // For the next attempt, which might find none.
                room.put(own);
                Err(error)
            }
        }
    }

    async fn start_in_slot(
        &self,
        tenant: &Tenant,
        source: &ZygoteSource,
        deadline: Instant,
    ) -> Result<Fresh> {
        // Before the spawner is asked: its own slots know no tenants.
        let admitted = self.admit(tenant, deadline).await?;
        loop {
            match source.root(&self.spawner).await {
                // The zygotes that made room may not have ended yet.
                Err(Error::Sandbox(snowmelt_sandbox::Error::ZygoteSlots { .. }))
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(SLOT_ASKED_EVERY).await;
                }
                fresh => {
                    let Fresh { member, us } = fresh?;
                    return Ok(Fresh { member: member.admitted(admitted), us });
                }
            }
        }
    }

    /// Returns the room that was reserved together with the instances that are to be forked, or
    /// room that there is now. Waits for nothing: a caller that has room for an instance would keep
    /// that while it waits for this.
    fn first_room(&self, tenant: &Tenant, room: &ZygoteRoom) -> Result<Reservation> {
        if let Some(room) = room.take() {
            return Ok(room);
        }
        let ask = self.account.ask(tenant, Use::Zygote, account::zygote());
        Ok(self.account.at_once(&ask)?)
    }

    async fn admit(&self, tenant: &Tenant, deadline: Instant) -> Result<Admitted> {
        loop {
            // The wait is prepared before the attempt, so that no change after the attempt is
            // missed.
            let changed = self.admission.changed();
            if let Some(admitted) = self.admit_now(tenant) {
                return Ok(admitted);
            }
            if timeout_at(deadline.into(), changed).await.is_err() {
                return Err(self.admission.refusal(tenant));
            }
        }
    }

    fn admit_now(&self, tenant: &Tenant) -> Option<Admitted> {
        let admitted = self.admission.take(tenant);
        admitted.or_else(|| self.evict_one(tenant).then(|| self.admission.take(tenant))?)
    }

    /// Ends the idle zygote that is of least use, with its idle instances; `false` if there is
    /// none.
    fn evict_one(&self, tenant: &Tenant) -> bool {
        let mut state = self.lock();
        let idle = self.idle_zygotes(&state);
        let Some(victim) = self.admission.victim(tenant, idle) else { return false };
        let gone = victim.node.map(|node| state.tree.remove(node)).unwrap_or_default();
        let gone = self.retire(&mut state, &gone);
        drop(state);
        tracing::debug!(tenant = %victim.tenant, "an idle zygote makes room for another");
        // Before its idle instances end: the zygote is retired first, so that it ends with the last
        // of them.
        drop(gone);
        self.idle.end_below(victim.slot);
        true
    }

    /// Returns the first zygotes all of whose instances are idle.
    fn idle_zygotes(&self, state: &State) -> Vec<IdleZygote> {
        let paused = self.idle.by_slot();
        let children = children(state);
        let is_idle = |slot: &u64| {
            let paused = paused.get(slot).copied().unwrap_or(0);
            children.get(slot).is_none_or(|children| *children as usize <= paused)
        };
        let now = Instant::now();
        let kept = state.tree.all().filter(|node| node.parent.is_none()).filter_map(|root| {
            let process = state.slots.get(&root.id)?;
            let slot = process.member.get()?.slot()?.number();
            if !is_idle(&slot) {
                return None;
            }
            let useful = state.tree.saved_by_all_of(root, &state.demand, now);
            let tenant = root.scope.tenant.clone();
            let node = Some(root.id);
            Some(IdleZygote { slot, tenant, useful, used: Some(process.used()), node })
        });
        let retired = state.retired.iter().filter_map(|member| {
            let member = member.upgrade()?;
            let slot = member.slot()?;
            let tenant = slot.tenant().clone();
            let slot = slot.number();
            let idle = IdleZygote { slot, tenant, useful: 0.0, used: None, node: None };
            (is_idle(&slot) && paused.contains_key(&slot)).then_some(idle)
        });
        kept.chain(retired).collect()
    }
}

/// Returns how many children live below each first zygote, by the number of its slot.
fn children(state: &State) -> BTreeMap<u64, u32> {
    let kept = state.slots.values().filter_map(|slot| slot.member.get().cloned());
    let retired = state.retired.iter().filter_map(Weak::upgrade);
    let mut children = BTreeMap::new();
    for member in kept.chain(retired) {
        if let Some(slot) = member.slot() {
            *children.entry(slot.number()).or_default() += member.children();
        }
    }
    children
}
