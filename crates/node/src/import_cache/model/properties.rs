//! The properties that hold for every sequence of look-ups, growths, deaths and evictions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use snowmelt_types::{Digest, Tenant};

use super::demand::Demand;
use super::plan::Experience;
use super::tree::{DEEPEST, Grown, NodeId, ZygoteTree};
use super::want::{Set, Want, ZygoteScope};

const WHEELS: usize = 6;

/// A step of a sequence: one event in the life of the cache.
#[derive(Clone, Debug)]
enum CacheStep {
    /// A function starts cold: a zygote is looked up, and grown if that is worth it.
    Start {
        want: Want,
        times: usize,
    },
    /// A zygote that is planned next is grown; the memory and time that it really needs, and the
    /// names that it misses, are known only then.
    Grow {
        bytes: u64,
        us: u64,
        missed: BTreeSet<String>,
    },
    /// A zygote that was grown cannot be used as one.
    GrowFails,
    /// A zygote dies.
    Die(usize),
    Wait(Duration),
}

fn name(number: usize) -> String {
    format!("m{number}")
}

/// Makes wants over a few wheels; wheel `n` brings module `mn`, the last two wheels share a
/// namespace.
fn want() -> impl Strategy<Value = Want> {
    let bits = || prop::bits::u8::masked(0x3f);
    let parts = (0..2_usize, 0..2_usize, bits(), bits(), prop::option::of(0..2_u8));
    parts.prop_map(|(tenant, base, wheels, modules, code)| {
        let has = |bits: u8, number: usize| bits >> number & 1 == 1;
        let seen: Vec<usize> = (0..WHEELS).filter(|number| has(wheels, *number)).collect();
        let names = |number: usize| {
            let mut names = BTreeSet::from([name(number)]);
            names.extend((number >= WHEELS - 2).then(|| "shared".to_owned()));
            Arc::new(names)
        };
        let set = Set {
            wheels: seen.iter().map(|n| (Digest::of(n.to_string()), names(*n))).collect(),
            modules: seen.iter().filter(|n| has(modules, **n)).map(|n| name(*n)).collect(),
            code: code.map(|code| Digest::of(code.to_string())),
        };
        Want { scope: scope(tenant, base), set }
    })
}

fn scope(tenant: usize, base: usize) -> ZygoteScope {
    let tenant: Tenant = format!("t{tenant}").parse().unwrap_or_default();
    ZygoteScope { tenant, base: Digest::of(base.to_string()) }
}

fn steps() -> impl Strategy<Value = Vec<CacheStep>> {
    let missed = prop::collection::btree_set((0..WHEELS).prop_map(name), 0..3);
    let step = prop_oneof![
        4 => (want(), 1..4_usize).prop_map(|(want, times)| CacheStep::Start { want, times }),
        4 => (1..200_u64, 1..1000_u64, missed).prop_map(|(mib, ms, missed)| {
            CacheStep::Grow { bytes: mib << 20, us: ms * 1000, missed }
        }),
        1 => Just(CacheStep::GrowFails),
        1 => any::<usize>().prop_map(CacheStep::Die),
        1 => (0..2000_u64).prop_map(|s| CacheStep::Wait(Duration::from_secs(s))),
    ];
    prop::collection::vec(step, 1..40)
}

/// A world that plays steps as the cache does, and checks after each what must hold.
struct World {
    tree: ZygoteTree,
    demand: Demand,
    experience: Experience,
    budget: u64,
    now: Instant,
}

impl World {
    fn play(&mut self, step: CacheStep) {
        match step {
            CacheStep::Start { want, times } => self.start(&want, times),
            CacheStep::Grow { bytes, us, missed } => self.grow(bytes, us, missed),
            CacheStep::GrowFails => {
                if let Some(growth) = self.next() {
                    self.experience.failed(&growth.scope, &growth.set, self.now);
                    let again = self.next();
                    assert!(
                        again.is_none_or(
                            |again| again.set != growth.set || again.scope != growth.scope
                        )
                    );
                }
            }
            CacheStep::Die(which) => self.die(which),
            CacheStep::Wait(time) => self.now += time,
        }
        self.check();
    }

    fn next(&self) -> Option<super::plan::Growth> {
        self.experience.next(&self.tree, &self.demand, self.budget, self.now)
    }

    fn start(&mut self, want: &Want, times: usize) {
        self.demand.note(want, times, self.now);
        let found = self.tree.lookup(want);
        let node = self.tree.get(found).expect("a look-up never misses").clone();
        assert_eq!(node.scope, want.scope, "never another tenant's");
        assert!(node.grown.set.modules.is_subset(&want.set.modules), "the subset rule");
        let code = &node.grown.set.code;
        assert!(code.is_none() || *code == want.set.code, "no state of other code");
        assert!(node.grown.set.wheels.keys().all(|w| want.set.wheels.contains_key(w)));
        for other in self.tree.all().filter(|other| other.serves(want)) {
            assert!(other.grown.us <= node.grown.us, "the best that serves");
        }
        let beyond: BTreeMap<_, _> = want
            .set
            .wheels
            .iter()
            .filter(|(w, _)| !node.grown.set.wheels.contains_key(*w))
            .collect();
        for names in beyond.values() {
            assert!(names.is_disjoint(&node.grown.missed), "it never looked for these in vain");
        }
        self.shrink();
    }

    fn grow(&mut self, bytes: u64, us: u64, missed: BTreeSet<String>) {
        let Some(growth) = self.next() else { return };
        let parent = self.tree.get(growth.parent).expect("it grows from a kept zygote").clone();
        assert_eq!(parent.scope, growth.scope);
        assert!(parent.grown.set.is_subset(&growth.set) && parent.depth < DEEPEST);
        let us = parent.grown.us + us;
        let grown = Grown { set: growth.set.clone(), missed, bytes, us };
        self.experience.became(&growth.scope, &growth.set, grown.clone());
        self.tree.insert(Some(parent.id), &growth.scope, grown);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.tree.bytes() > self.budget {
            let benefits = self.tree.by_benefit(&self.demand, self.now);
            let one_less = self.tree.bytes() - 1;
            let gone = self.tree.shrink(one_less, None, &self.demand, self.now);
            let least = benefits.iter().map(|(_, benefit)| *benefit).fold(f64::INFINITY, f64::min);
            for node in gone {
                let own = benefits.iter().find(|(id, _)| *id == node.id);
                assert_eq!(own.map(|(_, benefit)| *benefit), Some(least), "the least goes first");
            }
        }
    }

    fn die(&mut self, which: usize) {
        let ids: Vec<NodeId> = self.tree.all().map(|node| node.id).collect();
        let Some(id) = ids.get(which % ids.len().max(1)) else { return };
        let gone = self.tree.remove(*id);
        assert!(gone.contains(id));
    }

    fn check(&self) {
        assert!(self.tree.bytes() <= self.budget, "the budget holds");
        for node in self.tree.all() {
            let Some(parent) = node.parent else { continue };
            let parent = self.tree.get(parent).expect("no zygote outlives what it grew from");
            assert_eq!((parent.depth + 1, &parent.scope), (node.depth, &node.scope));
            assert!(node.depth <= DEEPEST);
        }
    }
}

proptest! {
    #[test]
    fn every_sequence_keeps_the_rules(steps in steps(), mib in 0..400_u64) {
        let mut world = World {
            tree: ZygoteTree::default(),
            demand: Demand::default(),
            experience: Experience::default(),
            budget: mib << 20,
            now: Instant::now(),
        };
        for step in steps {
            world.play(step);
        }
    }

    #[test]
    fn what_serves_one_tenant_serves_no_other(want in want(), us in 1..1000_u64) {
        let mut tree = ZygoteTree::default();
        let root = tree.lookup(&want);
        let grown = Grown { set: want.set.clone(), us: 1_000_000 + us, ..Grown::default() };
        let grown = tree.insert(Some(root), &want.scope, grown);
        assert_eq!(tree.lookup(&want), grown);
        let mut other = want.clone();
        other.scope.tenant = "other".parse().unwrap_or_default();
        let found = tree.lookup(&other);
        assert!(found != grown && found != root);
    }
}

fn of(wheels: &[usize], modules: &[usize]) -> Want {
    let names = |number: usize| Arc::new(BTreeSet::from([name(number)]));
    let set = Set {
        wheels: wheels.iter().map(|n| (Digest::of(n.to_string()), names(*n))).collect(),
        modules: modules.iter().map(|n| name(*n)).collect(),
        code: None,
    };
    Want { scope: scope(0, 0), set }
}

#[test]
fn one_start_grows_nothing_and_two_do() {
    let mut tree = ZygoteTree::default();
    let mut demand = Demand::default();
    let now = Instant::now();
    let want = of(&[1], &[1]);
    let experience = Experience::default();
    tree.lookup(&want);
    demand.note(&want, 1, now);
    assert!(experience.next(&tree, &demand, u64::MAX, now).is_none());
    demand.note(&want, 1, now);
    let growth = experience.next(&tree, &demand, u64::MAX, now).expect("worth it now");
    assert_eq!(growth.set, want.set);
}

#[test]
fn shared_set_ups_are_worth_a_zygote_where_the_imports_are_there_already() {
    let mut tree = ZygoteTree::default();
    let mut demand = Demand::default();
    let now = Instant::now();
    let experience = Experience::default();
    let plain = of(&[1], &[1]);
    let root = tree.lookup(&plain);
    let grown = Grown { set: plain.set.clone(), bytes: 1, us: 200_000, ..Grown::default() };
    let imported = tree.insert(Some(root), &plain.scope, grown);
    let mut want = plain.clone();
    want.set.code = Some(Digest::of("code"));
    assert_eq!(tree.lookup(&want), imported);
    demand.note(&want, 2, now);
    let growth = experience.next(&tree, &demand, u64::MAX, now).expect("worth it");
    assert_eq!((growth.set, growth.parent), (want.set, imported));
}

#[test]
fn what_two_functions_share_becomes_an_inner_zygote() {
    let mut tree = ZygoteTree::default();
    let mut demand = Demand::default();
    let now = Instant::now();
    let experience = Experience::default();
    let one = of(&[1, 2], &[1, 2]);
    let two = of(&[1, 3], &[1, 3]);
    let root = tree.lookup(&one);
    for want in [&one, &two] {
        demand.note(want, 1, now);
    }
    // Neither is worth a zygote of its own, but both would use this one.
    let growth = experience.next(&tree, &demand, u64::MAX, now).expect("worth it");
    assert_eq!(growth.set, of(&[1], &[1]).set);
    let grown = Grown { set: growth.set, bytes: 1, us: 200_000, ..Grown::default() };
    let inner = tree.insert(Some(root), &one.scope, grown);
    for _ in 0..3 {
        demand.note(&one, 1, now);
    }
    let growth = experience.next(&tree, &demand, u64::MAX, now).expect("worth it");
    assert_eq!((growth.set, growth.parent), (one.set, inner));
}

#[test]
fn a_package_that_was_missed_is_not_hidden_from_a_function_that_has_it() {
    let mut tree = ZygoteTree::default();
    let plain = of(&[1], &[1]);
    let more = of(&[1, 2], &[1]);
    let root = tree.lookup(&plain);
    let missed = BTreeSet::from([name(2)]);
    let grown = Grown { set: plain.set.clone(), missed, bytes: 1, us: 100_000 };
    let grown = tree.insert(Some(root), &plain.scope, grown);
    assert_eq!(tree.lookup(&plain), grown);
    assert_eq!(tree.lookup(&more), root);
}

#[test]
fn a_full_budget_is_given_to_what_saves_more() {
    let mut tree = ZygoteTree::default();
    let mut demand = Demand::default();
    let now = Instant::now();
    let experience = Experience::default();
    let rare = of(&[1], &[1]);
    let often = of(&[2], &[2]);
    let root = tree.lookup(&rare);
    let grown = Grown { set: rare.set.clone(), bytes: 20 << 20, us: 110_000, ..Grown::default() };
    let old = tree.insert(Some(root), &rare.scope, grown);
    let budget = tree.bytes();
    demand.note(&rare, 2, now);
    demand.note(&often, 2, now);
    assert!(experience.next(&tree, &demand, budget, now).is_none());
    demand.note(&often, 20, now);
    let growth = experience.next(&tree, &demand, budget, now).expect("worth more");
    let gone = tree.shrink(budget - growth.bytes, Some(growth.parent), &demand, now);
    assert_eq!(gone.iter().map(|node| node.id).collect::<Vec<_>>(), [old]);
}
