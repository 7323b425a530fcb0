//! What the import cache tells of itself.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use snowmelt_types::ByteSize;

use super::cache::{Inner, State};
use super::tree::{Node, NodeId};

/// What is counted since the node started; see [`ImportFigures`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: AtomicU64,
    pub(super) partial: AtomicU64,
    pub(super) bare: AtomicU64,
    pub(super) grown: AtomicU64,
    pub(super) evicted: AtomicU64,
}

/// The import cache: how it did since the node started, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImportFigures {
    /// Forks of a zygote that had imported all that the function declares.
    pub hits: u64,
    /// Forks of a zygote that had imported a part of it.
    pub partial: u64,
    /// Forks of a bare interpreter.
    pub bare: u64,
    /// Zygotes that were grown from others.
    pub grown: u64,
    /// Zygotes that were let go of.
    pub evicted: u64,
    /// Memory of the kept zygotes, in bytes.
    pub bytes: u64,
    /// The most that they may hold, in bytes.
    pub budget: u64,
    /// Each of them, parents before children; then those that only wait for their last child.
    pub zygotes: Vec<ZygoteFigures>,
}

/// One zygote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ZygoteFigures {
    /// A number of its own; 0 for one that is no longer kept.
    pub id: u64,
    /// The zygote that it was grown from.
    pub parent: Option<u64>,
    /// Whose code it may run.
    pub tenant: String,
    /// What it has imported beside the runtime.
    pub modules: Vec<String>,
    /// Wheels that it can see.
    pub wheels: usize,
    /// Its own memory, in bytes.
    pub bytes: u64,
    /// Import time in it and its ancestors, in microseconds.
    pub import_us: u64,
    /// Children so far.
    pub forks: u64,
    /// Children alive.
    pub children: u32,
    /// Import time that it is likely to save in the next five minutes, in microseconds.
    pub saved_us: f64,
    /// False for one that ends with its last child.
    pub kept: bool,
}

impl ZygoteFigures {
    pub(super) fn retired(memory: Option<ByteSize>, forks: u64, children: u32) -> Self {
        let bytes = memory.map_or(0, ByteSize::bytes);
        Self { bytes, forks, children, ..Self::default() }
    }
}

impl Inner {
    /// What the cache holds and how it did.
    pub(super) fn figures(&self, now: Instant) -> ImportFigures {
        let state = self.lock();
        let mut zygotes: Vec<ZygoteFigures> =
            state.tree.all().map(|node| zygote_figures(node, &state, now)).collect();
        zygotes.extend(state.retired.iter().filter_map(Weak::upgrade).map(|member| {
            ZygoteFigures::retired(member.memory(), member.forks(), member.children())
        }));
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

fn zygote_figures(node: &Node, state: &State, now: Instant) -> ZygoteFigures {
    let member = state.slots.get(&node.id).and_then(|slot| slot.member.get());
    ZygoteFigures {
        id: node.id.number(),
        parent: node.parent.map(NodeId::number),
        tenant: node.place.tenant.to_string(),
        modules: node.grown.set.modules.iter().cloned().collect(),
        wheels: node.grown.set.wheels.len(),
        bytes: node.grown.bytes,
        import_us: node.grown.us,
        forks: member.map_or(0, |member| member.forks()),
        children: member.map_or(0, |member| member.children()),
        saved_us: state.tree.saved(node, &state.demand, now),
        kept: true,
    }
}
