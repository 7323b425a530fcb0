//! Striped trees: small ones as they are, and any sequence of insertions and removals against maps
//! from hosts to parents that know only what was reported.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::model::{Op, ops};
use crate::{BINARY, StripeMove, Striped};

fn striped(hosts: u16) -> Striped<u16> {
    let mut striped = Striped::new(BINARY);
    for host in 1..=hosts {
        striped.insert(host);
    }
    striped
}

fn orders(striped: &Striped<u16>) -> Vec<Vec<u16>> {
    (0..striped.stripes()).map(|stripe| striped.hosts(stripe).copied().collect()).collect()
}

#[test]
fn a_host_has_children_in_one_of_the_two_trees() {
    assert_eq!(orders(&striped(1)), [[1], [1]]);
    assert_eq!(orders(&striped(2)), [[1, 2], [2, 1]]);
    assert_eq!(orders(&striped(4)), [[1, 3, 2, 4], [2, 4, 3, 1]]);
    let six = striped(6);
    assert_eq!(orders(&six), [[1, 3, 5, 4, 2, 6], [2, 4, 6, 1, 5, 3]]);
    assert_eq!(
        (six.parent(0, &4), six.parent(1, &4), six.parent(1, &2)),
        (Some(&3), Some(&2), None)
    );
    assert_eq!(six.children(1, &4).copied().collect::<Vec<_>>(), [1, 5]);
    assert_eq!(six.children(0, &4).count(), 0);
    assert_eq!((six.height(), six.depth(1, &3), six.depth(1, &9)), (3, Some(2), None));
}

#[test]
fn a_new_host_moves_one_other_at_most() {
    let mut striped = Striped::new(BINARY);
    for host in 0..500_u16 {
        let moves = striped.insert(host);
        assert!(moves.len() <= 1, "{host}: {moves:?}");
        assert!(striped.insert(host).is_empty());
    }
    assert_eq!((striped.len(), striped.height()), (500, 9));
}

#[test]
fn the_children_of_a_removed_host_get_another_that_had_none() {
    let mut striped = striped(5);
    assert_eq!(orders(&striped), [[1, 3, 5, 4, 2], [2, 4, 3, 1, 5]]);
    let moves = striped.remove(&3);
    // In the first stripe, 5 had no children in any tree.
    assert_eq!(orders(&striped), [[1, 5, 2, 4], [2, 4, 5, 1]]);
    let step = |stripe, host, from, to| StripeMove { stripe, host, from: Some(from), to: Some(to) };
    assert_eq!(moves, [step(0, 4, 3, 5), step(0, 2, 3, 1), step(1, 5, 4, 2)]);
    assert_eq!(striped.remove(&3), []);
}

/// Inner places in all trees that are more than there are hosts.
fn excess(hosts: usize, fanout: usize) -> usize {
    let inner = hosts.saturating_sub(1).div_ceil(fanout);
    (inner * fanout).saturating_sub(hosts)
}

fn run(ops: &[Op], fanout: usize) -> Result<(), TestCaseError> {
    let mut striped = Striped::new(NonZeroUsize::new(fanout).unwrap());
    let mut parents: Vec<BTreeMap<u16, Option<u16>>> = vec![BTreeMap::new(); fanout];
    for op in ops {
        let (moves, most) = match *op {
            Op::Insert(host) => {
                let known = striped.contains(&host);
                let moves = striped.insert(host);
                for (stripe, parents) in parents.iter_mut().enumerate().filter(|_| !known) {
                    parents.insert(host, striped.parent(stripe, &host).copied());
                }
                (moves, 1 + fanout)
            }
            Op::Remove(host) => {
                for parents in &mut parents {
                    parents.remove(&host);
                }
                // Its children, one in its place, and one in the place of that one, in one stripe;
                // one in each of the others.
                (striped.remove(&host), 2 * fanout + 1)
            }
        };
        if fanout == 2 {
            prop_assert!(moves.len() <= most, "{op:?}: {moves:?}");
        }
        for StripeMove { stripe, host, from, to } in moves {
            prop_assert_eq!(parents[stripe].insert(host, to), Some(from));
            prop_assert_ne!(from, to);
        }
        same(&striped, &parents)?;
    }
    Ok(())
}

fn same(
    striped: &Striped<u16>,
    parents: &[BTreeMap<u16, Option<u16>>],
) -> Result<(), TestCaseError> {
    striped.check().map_err(|broken| TestCaseError::fail(broken.to_string()))?;
    let hosts = striped.len();
    let fanout = striped.stripes();
    let mut inner: BTreeMap<u16, usize> = BTreeMap::new();
    for (stripe, parents) in parents.iter().enumerate() {
        prop_assert_eq!(parents.len(), hosts);
        let order: Vec<u16> = striped.hosts(stripe).copied().collect();
        prop_assert!(order.is_sorted_by_key(|host| striped.depth(stripe, host)));
        prop_assert_eq!(order.len(), hosts);
        for (host, parent) in parents {
            prop_assert_eq!(striped.parent(stripe, host), parent.as_ref());
            let below = striped.children(stripe, host).count();
            prop_assert_eq!(
                below,
                parents.values().filter(|parent| **parent == Some(*host)).count()
            );
            prop_assert!(below <= fanout);
            *inner.entry(*host).or_default() += usize::from(below > 0);
        }
        // The levels above the last are full.
        let levels = striped.height();
        prop_assert!(hosts < 2 || hosts > (0..levels as u32 - 1).map(|l| fanout.pow(l)).sum());
    }
    let more: usize = inner.values().map(|count| count.saturating_sub(1)).sum();
    let idle = inner.values().filter(|count| **count == 0).count();
    prop_assert_eq!(more, excess(hosts, fanout), "{:?}", inner);
    prop_assert!(idle <= 1, "{:?}", inner);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_leaves_stripes_with_different_inner_hosts(ops in ops()) {
        run(&ops, 2)?;
    }

    #[test]
    fn wider_trees_share_as_few_inner_hosts_as_possible(ops in ops(), fanout in 1_usize..6) {
        let ops = &ops[..if fanout == 1 { ops.len().min(80) } else { ops.len() }];
        run(ops, fanout)?;
    }
}
