//! Decides which zygote to grow next, and from which: one that is worth its memory.
//!
//! Candidates are the sets that functions declare and the common part of any two of them. A
//! candidate is grown when it saves more import time than it costs, and when it fits into the
//! budget, if need be instead of zygotes that save less for each byte.

use crate::times::GROWN_AGAIN_AFTER;
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use snowmelt_types::Digest;

use super::demand::Demand;
use super::tree::{DEEPEST, Grown, NodeId, ZygoteNode, ZygoteTree};
use super::want::{Set, Want, ZygoteScope};

/// How many times its price growing must be likely to save. The price is the import, once; it must
/// be likely to save that and half again. Two cold starts that come soon after one another are
/// enough.
const WORTH: f64 = 1.5;

/// The most wants whose common parts are looked at: all pairs are compared.
const COMPARED: usize = 24;

/// The most results of growth that are remembered; one more forgets all.
const MAX_TRIED: usize = 512;

/// The time in microseconds and the memory in bytes that a module of a wheel is taken to need until
/// it has been imported once. `UNKNOWN_STANDARD` is the same for a module of the standard library.
const UNKNOWN: (u64, u64) = (50_000, 16 << 20);
const UNKNOWN_STANDARD: (u64, u64) = (1_500, 1 << 20);

/// The time in microseconds and the memory in bytes that the shared set-ups of code are taken to
/// need until they have run.
const UNKNOWN_SETUP: (u64, u64) = UNKNOWN;

/// The least time, in microseconds, that a zygote must save for each start to be worth a process.
const LEAST_US: u64 = 2_000;

/// The memory, in bytes, that a zygote needs beside its imports.
const OWN_BYTES: u64 = 4 << 20;

/// A zygote that should be grown.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    pub scope: ZygoteScope,
    pub set: Set,
    /// The zygote from which the new one is grown.
    pub parent: NodeId,
    /// An estimate of the memory, in bytes, that the new zygote will need.
    pub bytes: u64,
    /// The time, in microseconds, that the new zygote is likely to save for each byte of its
    /// memory.
    pub benefit: f64,
}

/// The record of the time and memory that imports turned out to need, and of the result of each set
/// that was grown.
#[derive(Debug, Default)]
pub(crate) struct Experience {
    /// The microseconds and bytes that a module needed, by its wheel (`None` for the standard
    /// library) and name.
    costs: HashMap<(Option<Digest>, String), (u64, u64)>,
    tried: HashMap<(ZygoteScope, Set), Tried>,
}

/// The result of growing a set.
#[derive(Clone, Debug)]
enum Tried {
    Became(Grown),
    FailedAt(Instant),
}

impl Experience {
    /// Remembers the time and memory that a module needed. A module that is imported after those
    /// that it needs itself looks cheap, so the highest values that were seen hold.
    pub fn measured(&mut self, set: &Set, module: &str, us: u64, bytes: u64) {
        let known = self.costs.entry(key(set, module)).or_default();
        *known = (known.0.max(us), known.1.max(bytes));
    }

    /// Remembers the zygote that a set became.
    pub fn became(&mut self, scope: &ZygoteScope, set: &Set, grown: Grown) {
        self.remember(scope, set, Tried::Became(grown));
    }

    /// Remembers that a set could not be grown into a zygote. The set is left alone for a while,
    /// because the reason may pass (too little memory) or may not (an import that starts threads).
    pub fn failed(&mut self, scope: &ZygoteScope, set: &Set, now: Instant) {
        self.remember(scope, set, Tried::FailedAt(now));
    }

    fn remember(&mut self, scope: &ZygoteScope, set: &Set, tried: Tried) {
        if self.tried.len() >= MAX_TRIED {
            self.tried.clear();
        }
        self.tried.insert((scope.clone(), set.clone()), tried);
    }

    /// Returns the growth that saves most for each byte; `None` if none is worth it.
    pub fn next(
        &self,
        tree: &ZygoteTree,
        demand: &Demand,
        budget: u64,
        now: Instant,
    ) -> Option<Growth> {
        let candidates = candidates(tree, demand, now);
        let worth = candidates.iter().filter_map(|one| self.worth(one, tree, demand, budget, now));
        worth.max_by(|a, b| a.benefit.total_cmp(&b.benefit))
    }

    /// Returns how to grow a zygote of this very set; `None` if that is not worth it.
    pub fn worth(
        &self,
        want: &Want,
        tree: &ZygoteTree,
        demand: &Demand,
        budget: u64,
        now: Instant,
    ) -> Option<Growth> {
        let parent = tree.best(want, |node| node.depth < DEEPEST)?;
        let grown = self.expected(want, parent, now)?;
        let node = ZygoteNode {
            id: parent.id,
            scope: want.scope.clone(),
            parent: Some(parent.id),
            depth: parent.depth + 1,
            grown,
        };
        let gain = gain(&node, tree, demand, now);
        let price = (node.grown.us - parent.grown.us) as f64;
        let benefit = gain / node.grown.bytes.max(1) as f64;
        let bytes = node.grown.bytes;
        if gain < WORTH * price || !fits(bytes, benefit, parent.id, tree, demand, budget, now) {
            return None;
        }
        let scope = want.scope.clone();
        let set = want.set.clone();
        Some(Growth { scope, set, parent: parent.id, bytes, benefit })
    }

    /// Returns what a set will become, as far as can be known before; `None` if that would be no
    /// better than its parent, or failed a short time ago.
    fn expected(&self, want: &Want, parent: &ZygoteNode, now: Instant) -> Option<Grown> {
        let grown = match self.tried.get(&(want.scope.clone(), want.set.clone())) {
            Some(Tried::Became(grown)) => grown.clone(),
            Some(Tried::FailedAt(then)) if now.duration_since(*then) < GROWN_AGAIN_AFTER => {
                return None;
            }
            _ => self.estimate(&want.set, parent),
        };
        (grown.us >= parent.grown.us + LEAST_US).then_some(grown)
    }

    fn estimate(&self, set: &Set, parent: &ZygoteNode) -> Grown {
        let mut us = parent.grown.us;
        let mut bytes = OWN_BYTES;
        for module in set.modules.difference(&parent.grown.set.modules) {
            let key = key(set, module);
            let unknown = if key.0.is_some() { UNKNOWN } else { UNKNOWN_STANDARD };
            let cost = self.costs.get(&key).copied().unwrap_or(unknown);
            us += cost.0;
            bytes += cost.1;
        }
        if set.code != parent.grown.set.code {
            us += UNKNOWN_SETUP.0;
            bytes += UNKNOWN_SETUP.1;
        }
        Grown { set: set.clone(), missed: BTreeSet::new(), bytes, us }
    }
}

fn key(set: &Set, module: &str) -> (Option<Digest>, String) {
    let top = module.split('.').next().unwrap_or(module);
    let wheel = set.wheels.iter().find(|(_, names)| names.contains(top));
    (wheel.map(|(wheel, _)| wheel.clone()), module.to_owned())
}

/// Returns the sets that functions declare, and the common part of each two of them. Only the
/// functions that lack the most imports are looked at.
fn candidates(tree: &ZygoteTree, demand: &Demand, now: Instant) -> BTreeSet<Want> {
    let lacking = |want: &Want, count: f64| {
        let best = tree.best(want, |_| true);
        let imported = best.map_or(0, |best| best.grown.set.modules.len());
        let set_up = best.is_some_and(|best| best.grown.set.code == want.set.code);
        let lacking = want.set.modules.len().saturating_sub(imported) + usize::from(!set_up);
        count * lacking as f64
    };
    let mut wants: Vec<_> =
        demand.all(now).map(|(want, count)| (want, lacking(want, count))).collect();
    wants.sort_by(|a, b| b.1.total_cmp(&a.1));
    wants.truncate(COMPARED);
    let mut found: BTreeSet<Want> = wants.iter().map(|(want, _)| (*want).clone()).collect();
    for (index, (one, _)) in wants.iter().enumerate() {
        for (other, _) in &wants[index + 1..] {
            if one.scope == other.scope {
                found.insert(Want { scope: one.scope.clone(), set: one.set.shared(&other.set) });
            }
        }
    }
    found.retain(|want| !want.set.modules.is_empty() || want.set.code.is_some());
    found
}

/// Returns the time, in microseconds, that a zygote would save in the starts that are counted.
fn gain(node: &ZygoteNode, tree: &ZygoteTree, demand: &Demand, now: Instant) -> f64 {
    let served = demand.all(now).filter(|(want, _)| node.serves(want));
    served.map(|(want, count)| count * better_by(node, want, tree)).sum()
}

fn better_by(node: &ZygoteNode, want: &Want, tree: &ZygoteTree) -> f64 {
    let now = tree.best(want, |_| true).map_or(0, |best| best.grown.us);
    node.grown.us.saturating_sub(now) as f64
}

/// Returns whether there is room in the budget for a zygote, or enough memory in zygotes that are
/// worth less.
fn fits(
    bytes: u64,
    benefit: f64,
    parent: NodeId,
    tree: &ZygoteTree,
    demand: &Demand,
    budget: u64,
    now: Instant,
) -> bool {
    let mut over = (tree.bytes() + bytes).saturating_sub(budget);
    if over == 0 {
        return true;
    }
    for (id, worth) in tree.by_benefit(demand, now) {
        if id == parent {
            continue;
        }
        if worth >= benefit {
            return false;
        }
        over = over.saturating_sub(tree.get(id).map_or(0, |node| node.grown.bytes));
        if over == 0 {
            return true;
        }
    }
    false
}
