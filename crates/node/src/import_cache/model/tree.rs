//! The kept zygotes as data: which may be forked for which function, and which is evicted first.
//!
//! Invariant: a lookup gives a zygote of the want's own scope that declares nothing that the want
//! does not declare; a zygote with kept children of its own is never released before them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::demand::Demand;
use super::want::{Set, Want, ZygoteScope};

/// The most zygotes from a root to a leaf, both counted: the depth that the spawner can nest.
pub(super) const DEEPEST: u32 = 3;

/// The time in microseconds and the memory in bytes that a bare interpreter is taken to need until
/// it has been started.
const BARE: (u64, u64) = (60_000, 12 << 20);

/// The id of a kept zygote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(u64);

impl NodeId {
    /// Returns the number alone, for display.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The state of a zygote after its imports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grown {
    /// The wheels that the zygote sees and the modules that it has imported.
    pub set: Set,
    /// The top-level names that the imports looked for and did not find.
    pub missed: BTreeSet<String>,
    /// The memory of the zygote's own, in bytes, which its release gives back.
    pub bytes: u64,
    /// The import time in the zygote and its ancestors, in microseconds, which a fork saves.
    pub us: u64,
}

/// A kept zygote, as a node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct ZygoteNode {
    pub id: NodeId,
    pub scope: ZygoteScope,
    pub parent: Option<NodeId>,
    /// The number of zygotes from the root to this one, both counted: 1 for a root.
    pub depth: u32,
    pub grown: Grown,
}

impl ZygoteNode {
    /// Returns whether a child of this zygote may become a function that declares `want`.
    ///
    /// Two conditions come beside the subset rule. A module remembers what its import looked for in
    /// vain (pandas without pyarrow decides that there is none), so no missed name may be there for
    /// the function. And a name that two wheels share (a namespace) must have been whole.
    pub fn serves(&self, want: &Want) -> bool {
        let Grown { set, missed, .. } = &self.grown;
        self.scope == want.scope
            && set.is_subset(&want.set)
            && want.set.names_beyond(set).all(|name| !missed.contains(name) && !set.provides(name))
    }
}

/// All kept zygotes.
#[derive(Debug, Default)]
pub(crate) struct ZygoteTree {
    nodes: BTreeMap<NodeId, ZygoteNode>,
    last: u64,
}

impl ZygoteTree {
    /// Returns the zygote that saves a function most. There always is one: where there is nothing
    /// better it is the root of the scope, a bare interpreter, which is added if it is missing.
    pub fn lookup(&mut self, want: &Want) -> NodeId {
        if let Some(found) = self.best(want, |_| true) {
            return found.id;
        }
        let (us, bytes) = BARE;
        self.insert(None, &want.scope, Grown { us, bytes, ..Grown::default() })
    }

    /// Returns the kept zygote that saves a function most, among those that `allowed` lets through.
    pub fn best(&self, want: &Want, allowed: impl Fn(&ZygoteNode) -> bool) -> Option<&ZygoteNode> {
        let serving = self.nodes.values().filter(|node| node.serves(want) && allowed(node));
        // Of two zygotes that save the same, the older one is taken: its memory is shared by more.
        serving.max_by_key(|node| (node.grown.us, std::cmp::Reverse(node.id)))
    }

    /// Keeps a zygote. A zygote without a parent is a root: it has imported the runtime alone,
    /// which does not depend on the installed packages, and so it serves every function of its
    /// scope.
    pub fn insert(
        &mut self,
        parent: Option<NodeId>,
        scope: &ZygoteScope,
        mut grown: Grown,
    ) -> NodeId {
        self.last += 1;
        if parent.is_none() {
            (grown.set, grown.missed) = (Set::default(), BTreeSet::new());
        }
        let id = NodeId(self.last);
        let depth = parent.and_then(|parent| self.get(parent)).map_or(1, |parent| parent.depth + 1);
        self.nodes.insert(id, ZygoteNode { id, scope: scope.clone(), parent, depth, grown });
        id
    }

    /// Returns a kept zygote, to correct what is known of it.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut ZygoteNode> {
        self.nodes.get_mut(&id)
    }

    /// Returns a kept zygote; `None` if it was released.
    pub fn get(&self, id: NodeId) -> Option<&ZygoteNode> {
        self.nodes.get(&id)
    }

    /// Returns all kept zygotes, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = &ZygoteNode> {
        self.nodes.values()
    }

    /// Returns the memory of all kept zygotes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.nodes.values().map(|node| node.grown.bytes).sum()
    }

    /// Returns the zygotes that no kept zygote was grown from.
    pub fn leaves(&self) -> impl Iterator<Item = &ZygoteNode> {
        let parents: BTreeSet<NodeId> =
            self.nodes.values().filter_map(|node| node.parent).collect();
        self.nodes.values().filter(move |node| !parents.contains(&node.id))
    }

    /// Removes a zygote that has ended or is released, with all that were grown from it. Returns
    /// the removed ones.
    pub fn remove(&mut self, id: NodeId) -> Vec<NodeId> {
        let mut gone = vec![id];
        let mut next = 0;
        while let Some(parent) = gone.get(next).copied() {
            let children = self.nodes.values().filter(|node| node.parent == Some(parent));
            gone.extend(children.map(|node| node.id));
            next += 1;
        }
        gone.retain(|id| self.nodes.remove(id).is_some());
        gone
    }

    /// Returns what a zygote saves: microseconds of import time in the starts that are counted,
    /// compared with the next best zygote, which would be forked without it.
    pub fn saved(&self, node: &ZygoteNode, demand: &Demand, now: Instant) -> f64 {
        let mut saved = 0.0;
        for (want, count) in demand.all(now) {
            if !node.serves(want) || self.best(want, |_| true).map(|best| best.id) != Some(node.id)
            {
                continue;
            }
            let other = self.best(want, |other| other.id != node.id);
            let gain = node.grown.us - other.map_or(0, |other| other.grown.us);
            saved += count * gain as f64;
        }
        saved
    }

    /// Returns what a root and all zygotes that were grown from it save together, in microseconds.
    pub fn saved_by_all_of(&self, root: &ZygoteNode, demand: &Demand, now: Instant) -> f64 {
        let is_below = |node: &&ZygoteNode| {
            let above = |node: &ZygoteNode| node.parent.and_then(|parent| self.get(parent));
            let chain = std::iter::successors(Some(*node), |node| above(node));
            chain.into_iter().any(|node| node.id == root.id)
        };
        self.nodes.values().filter(is_below).map(|node| self.saved(node, demand, now)).sum()
    }

    /// Returns [`Self::saved`] for each byte that the zygote holds, which decides which zygotes are
    /// kept.
    pub fn benefit(&self, node: &ZygoteNode, demand: &Demand, now: Instant) -> f64 {
        self.saved(node, demand, now) / node.grown.bytes.max(1) as f64
    }

    /// Evicts leaves, the one of least benefit first, until at most `budget` bytes are kept.
    /// `spared` stays whatever it is worth, because a zygote is about to be grown from it. Returns
    /// the evicted ones.
    pub fn shrink(
        &mut self,
        budget: u64,
        spared: Option<NodeId>,
        demand: &Demand,
        now: Instant,
    ) -> Vec<ZygoteNode> {
        let mut gone = Vec::new();
        while self.bytes() > budget {
            let order = self.by_benefit(demand, now);
            let least = order.into_iter().find(|(id, _)| Some(*id) != spared);
            let Some(node) = least.and_then(|(id, _)| self.nodes.remove(&id)) else { break };
            gone.push(node);
        }
        gone
    }

    /// Returns the leaves with their benefit, the least first; of equals the youngest comes first,
    /// for which the fewest have waited.
    pub fn by_benefit(&self, demand: &Demand, now: Instant) -> Vec<(NodeId, f64)> {
        let benefit = |node: &ZygoteNode| (node.id, self.benefit(node, demand, now));
        let mut leaves: Vec<_> = self.leaves().map(benefit).collect();
        leaves.sort_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        leaves
    }
}
