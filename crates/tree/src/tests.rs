//! Tests of the tree as a whole.

mod model;
mod striped;

use std::num::NonZeroUsize;

use crate::{BINARY, Broken, Move, Placed, Repair, Tree, Unrestorable};

fn tree(hosts: u32, repair: Repair) -> Tree<u32> {
    let mut tree = Tree::with_repair(BINARY, repair);
    for host in 1..=hosts {
        tree.insert(host);
    }
    tree
}

fn step(host: u32, from: u32, to: u32) -> Move<u32> {
    let known = |host| (host != 0).then_some(host);
    Move { host, from: known(from), to: known(to) }
}

fn sorted(mut moves: Vec<Move<u32>>) -> Vec<Move<u32>> {
    moves.sort_by_key(|step| step.host);
    moves
}

/// The tree by levels, a host's children in brackets behind it.
fn drawn(tree: &Tree<u32>) -> String {
    fn below(tree: &Tree<u32>, host: u32) -> String {
        let children: Vec<_> = tree.children(&host).map(|&child| below(tree, child)).collect();
        match children.is_empty() {
            true => host.to_string(),
            false => format!("{host}({})", children.join(" ")),
        }
    }
    tree.root().map(|&root| below(tree, root)).unwrap_or_default()
}

#[test]
fn hosts_fill_the_levels_from_the_top() {
    let tree = tree(7, Repair::Refill);
    assert_eq!(drawn(&tree), "1(2(4 5) 3(6 7))");
    assert_eq!(tree.hosts().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((tree.height(), tree.depth(&7), tree.depth(&8)), (3, Some(2), None));
    assert_eq!((tree.parent(&1), tree.parent(&6)), (None, Some(&3)));
}

#[test]
fn a_wider_tree_fills_its_levels_as_well() {
    let mut tree = Tree::new(NonZeroUsize::new(4).unwrap());
    for host in 1..=7 {
        tree.insert(host);
    }
    assert_eq!(drawn(&tree), "1(2(6 7) 3 4 5)");
}

#[test]
fn a_host_that_is_inserted_twice_stays_where_it_is() {
    let mut tree = tree(5, Repair::Refill);
    assert_eq!(tree.insert(4), Placed { parent: Some(2), depth: 2, added: false });
    assert_eq!(tree.insert(6), Placed { parent: Some(3), depth: 2, added: true });
    assert_eq!(tree.len(), 6);
}

#[test]
fn a_removed_leaf_moves_nobody_while_the_tree_stays_balanced() {
    let mut tree = tree(7, Repair::Refill);
    assert_eq!(tree.remove(&4), []);
    assert_eq!(tree.remove(&9), []);
    assert_eq!(drawn(&tree), "1(2(5) 3(6 7))");
}

#[test]
fn a_removed_leaf_that_is_missed_is_replaced_by_one_of_the_lowest_level() {
    let mut tree = tree(9, Repair::Refill);
    tree.remove(&7);
    assert_eq!(tree.remove(&6), [step(9, 4, 3)]);
    assert_eq!(drawn(&tree), "1(2(4(8) 5) 3(9))");
}

#[test]
fn a_removed_root_is_replaced_by_one_leaf() {
    let mut tree = tree(7, Repair::Refill);
    let moves = sorted(tree.remove(&1));
    assert_eq!(moves, [step(2, 1, 7), step(3, 1, 7), step(7, 3, 0)]);
    assert_eq!(drawn(&tree), "7(2(4 5) 3(6))");
}

#[test]
fn the_last_child_of_a_removed_host_takes_its_place() {
    let mut tree = tree(3, Repair::Refill);
    assert_eq!(sorted(tree.remove(&1)), [step(2, 1, 3), step(3, 1, 0)]);
    assert_eq!(drawn(&tree), "3(2)");
    assert_eq!(tree.remove(&3), [step(2, 3, 0)]);
    assert_eq!(tree.remove(&2), []);
    assert!(tree.is_empty() && tree.root().is_none() && tree.height() == 0);
}

/// FaaSNet, Figure 6: hosts 1 to 6 in their order; 6 leaves, then 3.
#[test]
fn the_left_side_is_lifted_when_the_right_one_shrinks() {
    let mut tree = tree(6, Repair::Rotate);
    tree.remove(&6);
    let moves = sorted(tree.remove(&3));
    assert_eq!(moves, [step(1, 0, 2), step(2, 1, 0), step(5, 2, 1)]);
    assert_eq!(drawn(&tree), "2(4 1(5))");
}

#[test]
fn the_right_side_is_lifted_when_the_left_one_shrinks() {
    let mut tree = tree(7, Repair::Rotate);
    tree.remove(&4);
    tree.remove(&5);
    let moves = sorted(tree.remove(&2));
    assert_eq!(moves, [step(1, 0, 3), step(3, 1, 0), step(6, 3, 1)]);
    assert_eq!(drawn(&tree), "3(1(6) 7)");
}

/// FaaSNet, Figure 7: the inner grandchild becomes the root.
#[test]
fn an_inner_grandchild_is_lifted_twice() {
    let mut right = tree(6, Repair::Rotate);
    right.remove(&4);
    right.remove(&5);
    assert_eq!(drawn(&right), "1(2 3(6))");
    assert_eq!(sorted(right.remove(&2)), [step(1, 0, 6), step(3, 1, 6), step(6, 3, 0)]);
    assert_eq!(drawn(&right), "6(1 3)");

    let mut left = tree(5, Repair::Rotate);
    left.remove(&4);
    assert_eq!(sorted(left.remove(&3)), [step(1, 0, 5), step(2, 1, 5), step(5, 2, 0)]);
    assert_eq!(drawn(&left), "5(2 1)");
}

#[test]
fn a_tree_is_restored_with_the_parents_that_its_hosts_have() {
    let mut tree = tree(12, Repair::Refill);
    for host in [2, 7, 1] {
        tree.remove(&host);
    }
    let stored: Vec<_> = tree.hosts().map(|host| (*host, tree.parent(host).copied())).collect();
    let restored = Tree::restore(BINARY, stored.clone()).unwrap();
    for (host, parent) in stored {
        assert_eq!(restored.parent(&host).copied(), parent);
    }
    assert_eq!((restored.len(), restored.height()), (tree.len(), tree.height()));
}

#[test]
fn what_is_not_a_balanced_tree_is_not_restored() {
    let restored = |hosts: &[(u32, u32)]| {
        let known = |host| (host != 0).then_some(host);
        Tree::restore(BINARY, hosts.iter().map(|&(host, parent)| (host, known(parent))))
            .map(|tree| drawn(&tree))
    };
    assert_eq!(restored(&[]), Ok(String::new()));
    assert_eq!(restored(&[(1, 0), (2, 1), (3, 1)]), Ok("1(2 3)".to_owned()));
    assert_eq!(restored(&[(1, 0), (2, 1), (1, 2)]), Err(Unrestorable::Twice(1)));
    assert_eq!(restored(&[(1, 0), (2, 3)]), Err(Unrestorable::NoParent(2)));
    assert_eq!(restored(&[(1, 0), (2, 0)]), Err(Unrestorable::SecondRoot(2)));
    assert_eq!(restored(&[(1, 0), (2, 1), (3, 1), (4, 1)]), Err(Unrestorable::Full(4)));
    let unbalanced = Err(Unrestorable::Broken(Broken::Unbalanced(1)));
    assert_eq!(restored(&[(1, 0), (2, 1), (3, 2)]), unbalanced);
}
