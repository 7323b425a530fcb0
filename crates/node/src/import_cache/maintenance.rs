//! The release of zygotes: those that failed, those that ended, and those that are not forked any
//! more.

use crate::times::ZYGOTE_KEPT;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::model::plan::Growth;
use super::model::tree::NodeId;
use super::state::{Inner, State};
use super::zygote_process::ZygoteSlot;

impl Inner {
    /// Releases zygotes that are not needed. Returns the growth that is worth most now; `None` if
    /// none is worth it, or while zygotes are being grown.
    pub(super) fn maintain(&self, now: Instant) -> Option<Growth> {
        let mut state = self.lock();
        let State { tree, demand, slots, sources, retired, experience, growing } = &mut *state;
        demand.fade(now);
        sources.retain(|want, _| demand.knows(want));
        retired.retain(|member| member.strong_count() > 0);
        for member in retired.iter().filter_map(Weak::upgrade) {
            // Retired zygotes keep their memory until their last child ends, so they are measured
            // on.
            let _ = member.measure();
        }
        let mut gone = Vec::new();
        for (id, slot) in slots.iter() {
            let Some(member) = slot.member.get() else { continue };
            if !member.is_alive() {
                gone.extend(tree.remove(*id));
            } else if let (Some(node), Some(bytes)) = (tree.get_mut(*id), member.measure()) {
                node.grown.bytes = bytes.bytes();
            }
        }
        let old = |id: &NodeId| slots.get(id).is_none_or(|slot| slot.idle_for(now) > ZYGOTE_KEPT);
        let unused: Vec<NodeId> = tree.leaves().map(|leaf| leaf.id).filter(old).collect();
        gone.extend(unused.into_iter().flat_map(|id| tree.remove(id)));
        // One growth at a time: what it needs is known only when it is over.
        let is_idle = growing.is_empty();
        let next =
            if is_idle { experience.next(tree, demand, self.budget.bytes(), now) } else { None };
        let mut dropped = self.retire(&mut state, &gone);
        dropped.extend(self.shrink(&mut state, self.budget.bytes(), None));
        drop(state);
        drop(dropped);
        next
    }

    /// Releases a zygote that failed, with those that were grown from it.
    pub(super) fn lose(&self, slot: &Arc<ZygoteSlot>) {
        let mut state = self.lock();
        let id = state.slots.iter().find(|(_, one)| Arc::ptr_eq(one, slot)).map(|(id, _)| *id);
        let Some(id) = id else { return };
        let gone = state.tree.remove(id);
        let gone = self.retire(&mut state, &gone);
        drop(state);
        drop(gone);
    }
}
