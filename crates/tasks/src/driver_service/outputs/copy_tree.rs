//! The tree of hosts that copy one output: each host copies the output from its parent. The module
//! has no I/O, and knows nothing of queries.
//!
//! A host gets its place when it is asked for a task that reads the output. The hosts that are
//! asked next copy from it, although it may not have answered yet. It loses the place if no task
//! begins there.
//!
//! Invariants: a host copies from a host with a lower number than its own, and numbers are never
//! used twice. So no two hosts wait for each other, whatever has become of the hosts in between. A
//! host that is asked again after it had left has a new number.

use std::collections::{HashMap, HashSet};

/// The most hosts that copy an output from a host that is itself copying it.
pub(super) const CHILDREN: usize = 2;

/// A host that can be in a tree.
pub(super) trait CopyHost: Clone {
    /// Returns whether both are the same host.
    fn is(&self, other: &Self) -> bool;

    /// Returns whether nothing can be copied from this host any more.
    fn is_gone(&self) -> bool;
}

/// The tree of hosts that copy one output. Its root is the host that made the output, which is not
/// among its members.
#[derive(Debug)]
pub(super) struct CopyTree<H> {
    // By number. Each host is there once, also one that has left: it may have begun a copy.
    members: Vec<CopyMember<H>>,
}

#[derive(Debug)]
struct CopyMember<H> {
    host: H,
    number: u64,
    // The number of the host that it copies from; None is the root.
    parent: Option<u64>,
    // Questions for room that it has not answered.
    asked: usize,
    has_begun: bool,
}

/// The place of a host in a tree.
#[derive(Debug)]
pub(in crate::driver_service) struct Spot<H> {
    /// The number of the host's copy.
    pub number: u64,
    /// The host that this host copies from, and the number of that host's copy; `None` is the root.
    pub parent: Option<(H, u64)>,
}

impl<H> Default for CopyTree<H> {
    fn default() -> Self {
        Self { members: Vec::new() }
    }
}

impl<H: CopyHost> CopyTree<H> {
    /// Notes that a host is asked for a task. A host without a place gets one with this number,
    /// which must be higher than all before. The root may have `of_root` children.
    pub fn ask(&mut self, host: &H, number: u64, of_root: usize) -> Spot<H> {
        let known = self.members.iter().position(|member| member.host.is(host));
        let at = match known {
            Some(at) if self.members[at].has_place() => at,
            left => {
                if let Some(at) = left {
                    self.members.remove(at);
                }
                let parent = self.free(of_root);
                let host = host.clone();
                self.members.push(CopyMember { host, number, parent, asked: 0, has_begun: false });
                self.members.len() - 1
            }
        };
        self.members[at].asked += 1;
        let CopyMember { number, parent, .. } = self.members[at];
        let parent = parent.and_then(|parent| self.there(parent));
        Spot { number, parent: parent.map(|parent| (parent.host.clone(), parent.number)) }
    }

    /// Notes that a host has answered, or that nobody waits for its answer any more. The host
    /// leaves the tree if it has neither begun a copy nor has another open question.
    pub fn answered(&mut self, number: u64, has_begun: bool) {
        if let Some(member) = self.members.iter_mut().find(|member| member.number == number) {
            member.asked = member.asked.saturating_sub(1);
            member.has_begun |= has_begun;
        }
    }

    /// Returns the hosts that may have bytes of the output.
    pub fn hosts(self) -> impl Iterator<Item = H> {
        self.members.into_iter().map(|member| member.host)
    }

    /// Returns the number of the first host, in the order in which they came, that may have another
    /// child; `None` is the root.
    fn free(&self, of_root: usize) -> Option<u64> {
        let mut children: HashMap<Option<u64>, usize> = HashMap::new();
        let there = || self.members.iter().filter(|member| member.is_there());
        let numbers: HashSet<u64> = there().map(|member| member.number).collect();
        for member in there() {
            // The children of a host that is not there any more copy from the root.
            let parent = member.parent.filter(|parent| numbers.contains(parent));
            *children.entry(parent).or_default() += 1;
        }
        let has = |parent| children.get(&parent).copied().unwrap_or(0);
        if has(None) < of_root {
            return None;
        }
        there().map(|member| member.number).find(|number| has(Some(*number)) < CHILDREN)
    }

    fn there(&self, number: u64) -> Option<&CopyMember<H>> {
        self.members.iter().find(|member| member.number == number && member.is_there())
    }
}

impl<H: CopyHost> CopyMember<H> {
    fn has_place(&self) -> bool {
        self.has_begun || self.asked > 0
    }

    fn is_there(&self) -> bool {
        self.has_place() && !self.host.is_gone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    type Gone = Rc<RefCell<BTreeSet<u8>>>;

    #[derive(Clone, Debug)]
    struct Fake(u8, Gone);

    impl CopyHost for Fake {
        fn is(&self, other: &Self) -> bool {
            self.0 == other.0
        }

        fn is_gone(&self) -> bool {
            self.1.borrow().contains(&self.0)
        }
    }

    /// A tree, and the hosts that are asked for tasks.
    #[derive(Default)]
    struct Asks {
        tree: CopyTree<Fake>,
        gone: Gone,
        next: u64,
    }

    impl Asks {
        fn ask(&mut self, host: u8) -> Spot<Fake> {
            self.next += 1;
            self.tree.ask(&Fake(host, Rc::clone(&self.gone)), self.next, CHILDREN)
        }

        fn parent(&mut self, host: u8) -> Option<u8> {
            self.ask(host).parent.map(|(parent, _)| parent.0)
        }
    }

    #[test]
    fn hosts_that_are_asked_at_the_same_time_form_a_tree() {
        let mut asks = Asks::default();
        let parents: Vec<_> = (0..8).map(|host| asks.parent(host)).collect();
        let expected = [None, None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)];
        assert_eq!(parents, expected);
        assert_eq!(asks.parent(5), Some(1), "it stays where it is");
    }

    #[test]
    fn a_host_leaves_once_all_its_questions_are_answered_and_none_has_begun() {
        let mut asks = Asks::default();
        let first = asks.ask(0).number;
        assert_eq!(asks.ask(0).number, first, "two tasks, one copy");
        asks.tree.answered(first, false);
        assert_eq!([1, 2].map(|host| asks.parent(host)), [None, Some(0)]);
        asks.tree.answered(first, false);
        // The place at the root is free, but for the child that now copies from there.
        assert_eq!(asks.parent(3), Some(1));
        // It comes back as the last one.
        let again = asks.ask(0);
        assert!(again.number > first);
        assert_eq!(again.parent.map(|(parent, _)| parent.0), Some(1));
        asks.tree.answered(again.number, true);
        asks.tree.answered(again.number, false);
        assert_eq!(asks.ask(0).number, again.number, "it has begun");
        let mut hosts: Vec<_> = asks.tree.hosts().map(|host| host.0).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, [0, 1, 2, 3]);
    }

    #[test]
    fn nobody_copies_from_a_host_that_is_gone() {
        let mut asks = Asks::default();
        let parents: Vec<_> = (0..4).map(|host| asks.parent(host)).collect();
        assert_eq!(parents, [None, None, Some(0), Some(0)]);
        asks.gone.borrow_mut().insert(0);
        assert_eq!(asks.parent(2), None, "from the host that has made it");
        // The root has three children now.
        assert_eq!([4, 5, 6].map(|host| asks.parent(host)), [Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn the_root_may_have_more_children() {
        let mut tree = CopyTree::default();
        let gone = Gone::default();
        let parents = (0..6).map(|host| {
            let spot = tree.ask(&Fake(host, Rc::clone(&gone)), 1 + u64::from(host), 4);
            spot.parent.map(|(parent, _)| parent.0)
        });
        assert_eq!(parents.collect::<Vec<_>>(), [None, None, None, None, Some(0), Some(0)]);
    }

    /// An event of a host.
    #[derive(Clone, Debug)]
    enum Step {
        Asked(u8),
        /// The host answers its oldest question.
        Answers(u8, bool),
        IsLost(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        let host = 0_u8..12;
        prop_oneof![
            6 => host.clone().prop_map(Step::Asked),
            4 => (host.clone(), any::<bool>()).prop_map(|(host, begins)| Step::Answers(host, begins)),
            1 => host.prop_map(Step::IsLost),
        ]
    }

    proptest! {
        /// Checks the invariants while hosts are asked, begin, refuse, leave, come back and are
        /// lost, in any order.
        #[test]
        fn no_hosts_wait_for_each_other_and_each_has_two_children_at_most(
            steps in prop::collection::vec(step(), 0..120),
        ) {
            let mut asks = Asks::default();
            // Of each host the numbers of its open questions, and what a plain model knows of it.
            let mut open: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
            let mut begun: BTreeMap<u8, u64> = BTreeMap::new();
            // Who was told to copy from whom, by number, as long as both have their places.
            let mut told: BTreeMap<u64, Option<u64>> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Asked(host) => {
                        let questions = open.entry(host).or_default();
                        let before = questions.first().or(begun.get(&host)).copied();
                        let Spot { number, parent } = asks.ask(host);
                        match before {
                            Some(before) => prop_assert_eq!(number, before),
                            None => prop_assert_eq!(number, asks.next),
                        }
                        if let Some((parent, at)) = &parent {
                            prop_assert!(*at < number && parent.0 != host && !parent.is_gone());
                            let its = open.get(&parent.0).and_then(|open| open.first());
                            let its = its.or(begun.get(&parent.0));
                            prop_assert_eq!(its, Some(at));
                        }
                        told.insert(number, parent.map(|(_, at)| at));
                        open.entry(host).or_default().push(number);
                    }
                    Step::Answers(host, begins) => {
                        let questions = open.entry(host).or_default();
                        if questions.is_empty() {
                            continue;
                        }
                        let number = questions.remove(0);
                        asks.tree.answered(number, begins);
                        if begins {
                            begun.insert(host, number);
                        }
                    }
                    Step::IsLost(host) => {
                        asks.gone.borrow_mut().insert(host);
                    }
                }
                let is_there = |host: &u8| !asks.gone.borrow().contains(host);
                let open = open.iter().filter_map(|(host, it)| Some((host, it.first()?)));
                let placed = open.chain(&begun).filter(|(host, _)| is_there(host));
                let placed: BTreeSet<u64> = placed.map(|(_, number)| *number).collect();
                let mut children: BTreeMap<u64, usize> = BTreeMap::new();
                for parent in placed.iter().filter_map(|number| told[number]) {
                    *children.entry(parent).or_default() += 1;
                }
                prop_assert!(children.values().all(|children| *children <= CHILDREN));
                for number in &placed {
                    let mut above = *number;
                    while let Some(parent) = told[&above] {
                        prop_assert!(parent < above);
                        above = parent;
                    }
                }
            }
        }
    }
}
