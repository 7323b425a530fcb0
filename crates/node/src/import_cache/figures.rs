//! The metrics of the import cache.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use snowmelt_api::{ImportFigures, ZygoteFigures};
use snowmelt_types::ByteSize;

use super::model::tree::{NodeId, ZygoteNode};
use super::state::{Inner, State};

/// Returns the figures of a zygote that takes no more children and ends with its last child.
fn retired(memory: Option<ByteSize>, forks: u64, children: u32) -> ZygoteFigures {
    let bytes = memory.map_or(0, ByteSize::bytes);
    ZygoteFigures { bytes, forks, children, ..ZygoteFigures::default() }
}

impl Inner {
    /// Returns what the cache holds, and how many forks found their imports in it.
    pub(super) fn figures(&self, now: Instant) -> ImportFigures {
        let state = self.lock();
        let mut zygotes: Vec<ZygoteFigures> =
            state.tree.all().map(|node| zygote_figures(node, &state, now)).collect();
        zygotes.extend(
            state
                .retired
                .iter()
                .filter_map(Weak::upgrade)
                .map(|member| retired(member.memory(), member.forks(), member.children())),
        );
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        ImportFigures {
            hits: count(&counts.hits),
            partial: count(&counts.partial),
            bare: count(&counts.bare),
            grown: count(&counts.grown),
            evicted: count(&counts.evicted),
            bytes: state.tree.bytes(),
            budget: self.budget.bytes(),
            zygotes,
        }
    }
}

fn zygote_figures(node: &ZygoteNode, state: &State, now: Instant) -> ZygoteFigures {
    let member = state.slots.get(&node.id).and_then(|slot| slot.member.get());
    ZygoteFigures {
        id: node.id.number(),
        parent: node.parent.map(NodeId::number),
        tenant: node.scope.tenant.to_string(),
        modules: node.grown.set.modules.iter().cloned().collect(),
        wheels: node.grown.set.wheels.len(),
        set_up: node.grown.set.code.is_some(),
        bytes: node.grown.bytes,
        import_us: node.grown.us,
        forks: member.map_or(0, |member| member.forks()),
        children: member.map_or(0, |member| member.children()),
        saved_us: state.tree.saved(node, &state.demand, now),
        kept: true,
    }
}
