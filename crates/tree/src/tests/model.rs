//! Any sequence of insertions and removals, against a map from hosts to parents that knows only
//! what the tree reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;

use proptest::prelude::*;

use crate::{Repair, Tree};

type Parents = BTreeMap<u16, Option<u16>>;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Insert(u16),
    Remove(u16),
}

/// Sequences of operations on few keys, so that hosts leave and come back. Some sequences grow
/// first and shrink then.
pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let mixed = prop_oneof![(0..60_u16).prop_map(Op::Insert), (0..60_u16).prop_map(Op::Remove)];
    let grown = (1..400_u16).prop_map(|hosts| (0..hosts).map(Op::Insert).collect::<Vec<_>>());
    let left = prop::collection::vec((0..400_u16).prop_map(Op::Remove), 0..300);
    prop_oneof![
        prop::collection::vec(mixed, 0..300),
        (grown, left).prop_map(|(grown, left)| [grown, left].concat()),
    ]
}

fn children(parents: &Parents) -> BTreeMap<u16, BTreeSet<u16>> {
    let mut children: BTreeMap<_, BTreeSet<_>> =
        parents.keys().map(|&host| (host, BTreeSet::new())).collect();
    for (&host, parent) in parents {
        if let Some(parent) = parent {
            children.get_mut(parent).expect("a parent is in the tree").insert(host);
        }
    }
    children
}

/// Height of a subtree, unless it is not balanced.
fn height(children: &BTreeMap<u16, BTreeSet<u16>>, host: u16, fanout: usize) -> Option<usize> {
    let mut heights = vec![0; fanout - children[&host].len()];
    for &child in &children[&host] {
        heights.push(height(children, child, fanout)?);
    }
    let lowest = heights.iter().min()?;
    let highest = heights.iter().max()?;
    (highest - lowest <= 1).then_some(highest + 1)
}

/// Whether there is one root, from which a balanced tree reaches every host.
fn balanced(parents: &Parents, fanout: usize) -> bool {
    let children = children(parents);
    let roots: Vec<_> = parents.iter().filter(|(_, parent)| parent.is_none()).collect();
    match roots[..] {
        [] => parents.is_empty(),
        [(&root, _)] => {
            let mut reached = BTreeSet::from([root]);
            let mut queue = VecDeque::from([root]);
            while let Some(host) = queue.pop_front() {
                queue.extend(children[&host].iter().filter(|&&child| reached.insert(child)));
            }
            reached.len() == parents.len() && height(&children, root, fanout).is_some()
        }
        _ => false,
    }
}

/// The hops to the nearest host with an empty place.
fn nearest_room(parents: &Parents, fanout: usize) -> Option<usize> {
    let children = children(parents);
    let root = parents.iter().find(|(_, parent)| parent.is_none()).map(|(&root, _)| root)?;
    let mut queue = VecDeque::from([(root, 0)]);
    while let Some((host, depth)) = queue.pop_front() {
        if children[&host].len() < fanout {
            return Some(depth);
        }
        queue.extend(children[&host].iter().map(|&child| (child, depth + 1)));
    }
    None
}

/// The number of moves of an optimal repair: one for each child, and none or one for the hole.
fn fewest(parents: &Parents, leaving: u16, fanout: usize) -> std::ops::RangeInclusive<usize> {
    let orphans = parents.values().filter(|&&parent| parent == Some(leaving)).count();
    let mut without = parents.clone();
    without.remove(&leaving);
    match orphans {
        0 if balanced(&without, fanout) => 0..=0,
        0 => 1..=1,
        _ => orphans..=orphans + 1,
    }
}

fn run(ops: &[Op], fanout: usize, repair: Repair) -> Result<(), TestCaseError> {
    let mut tree = Tree::with_repair(NonZeroUsize::new(fanout).unwrap(), repair);
    let mut parents = Parents::new();
    for op in ops {
        match *op {
            Op::Insert(host) => {
                let known = parents.contains_key(&host);
                let room = nearest_room(&parents, fanout);
                let placed = tree.insert(host);
                prop_assert_eq!(placed.added, !known);
                if !known {
                    prop_assert_eq!(placed.depth, room.map_or(0, |depth| depth + 1));
                    parents.insert(host, placed.parent);
                }
            }
            Op::Remove(host) => {
                let fewest = fewest(&parents, host, fanout);
                let known = parents.remove(&host).is_some();
                let moves = tree.remove(&host);
                prop_assert!(known || moves.is_empty());
                if known && repair == Repair::Refill {
                    prop_assert!(fewest.contains(&moves.len()), "{:?}: {:?}", fewest, moves);
                }
                for step in moves {
                    let before = parents.insert(step.host, step.to);
                    prop_assert_eq!(before, Some(step.from));
                    prop_assert_ne!(step.from, step.to);
                }
            }
        }
        same(&tree, &parents)?;
        prop_assert!(balanced(&parents, fanout), "{parents:?}");
    }
    Ok(())
}

fn same(tree: &Tree<u16>, parents: &Parents) -> Result<(), TestCaseError> {
    tree.check().map_err(|broken| TestCaseError::fail(broken.to_string()))?;
    prop_assert_eq!(tree.len(), parents.len());
    let children = children(parents);
    for (host, parent) in parents {
        prop_assert_eq!(tree.parent(host), parent.as_ref());
        prop_assert_eq!(
            tree.children(host).copied().collect::<BTreeSet<_>>(),
            children[host].clone()
        );
    }
    let order: Vec<_> = tree.hosts().copied().collect();
    prop_assert!(order.is_sorted_by_key(|host| tree.depth(host)));
    let stored: Vec<_> = order.iter().map(|&host| (host, parents[&host])).collect();
    let fanout = NonZeroUsize::new(tree.fanout()).unwrap();
    let restored = Tree::restore(fanout, stored);
    prop_assert!(
        restored.is_ok_and(|found| order.iter().all(|h| found.parent(h) == tree.parent(h)))
    );
    prop_assert_eq!(order.into_iter().collect::<BTreeSet<_>>(), parents.keys().copied().collect());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_leaves_a_balanced_tree_and_reports_each_move(ops in ops(), fanout in 1_usize..6) {
        // A chain of hundreds of hosts shows nothing that a short one does not.
        let ops = &ops[..if fanout == 1 { ops.len().min(80) } else { ops.len() }];
        run(ops, fanout, Repair::Refill)?;
    }

    #[test]
    fn rotations_keep_the_same_promises(ops in ops()) {
        run(&ops, 2, Repair::Rotate)?;
    }
}
