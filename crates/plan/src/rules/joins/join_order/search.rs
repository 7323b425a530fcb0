//! The order of a group's joins with the least cost.
//!
//! Dynamic programming over the connected sets of relations, with trees of any shape; for large
//! groups the cheapest join of two sets first, again and again. Sets without a common key are
//! never joined.

use std::collections::{BTreeSet, HashMap};

use super::cost::{self, Side, Tasks};
use super::group::{JoinGroup, JoinTree, RelationColumn};
use crate::estimate::{Estimate, Input, distinct_of_some, estimate, joined_rows, selectivity};

/// The most relations of a group that is searched completely.
const MAX_SEARCHED: usize = 10;

/// The most that another order may cost, as a part of the cost of the written order: estimates are
/// rough.
const BETTER: f64 = 0.95;

/// Joined relations.
#[derive(Clone, Debug)]
struct Joined {
    /// The relations, as bits.
    set: u64,
    rows: f64,
    source_rows: f64,
    width: f64,
    cost: f64,
    /// Distinct values of each class; `None` for a class without a column here.
    distinct: Vec<Option<f64>>,
    order: JoinTree,
}

struct Search<'g> {
    group: &'g JoinGroup,
    inputs: Vec<Estimate>,
    /// The part of the rows that each condition keeps.
    kept: Vec<f64>,
    tasks: Tasks,
    // Rows and width of each set: they must not depend on the order.
    known: HashMap<u64, (f64, f64)>,
}

/// The best order; `None` if it is not better than the written one.
pub(super) fn best(group: &JoinGroup, tasks: Tasks) -> Option<JoinTree> {
    if group.relations.len() < 3 {
        return None;
    }
    let mut search = Search::new(group, tasks);
    let found = match group.relations.len() <= MAX_SEARCHED {
        true => search.all_orders(),
        false => search.greedy(),
    }?;
    let written = search.of_order(&group.written)?;
    (found.cost < written.cost * BETTER).then_some(found.order)
}

impl<'g> Search<'g> {
    fn new(group: &'g JoinGroup, tasks: Tasks) -> Self {
        let inputs: Vec<Estimate> = group.relations.iter().map(estimate).collect();
        let kept = group.conditions.iter().map(|condition| {
            let columns = condition.columns.iter();
            let columns = columns.map(|at| inputs[at.relation].column(at.column));
            selectivity(&condition.expr, &columns.collect::<Vec<_>>())
        });
        let kept = kept.collect();
        Self { group, inputs, kept, tasks, known: HashMap::new() }
    }

    fn relation(&self, index: usize) -> Joined {
        let input = &self.inputs[index];
        let distinct = self.group.classes.iter().map(|class| {
            let member = class.iter().find(|at| at.relation == index)?;
            Some(input.column(member.column).distinct)
        });
        Joined {
            set: 1 << index,
            rows: input.rows,
            source_rows: input.source_rows,
            width: input.width(),
            cost: 0.0,
            distinct: distinct.collect(),
            order: JoinTree::Relation(index),
        }
    }

    /// The join of two sets, with the better of them as its build side; `None` without a key.
    fn join(&mut self, one: &Joined, other: &Joined) -> Option<Joined> {
        let keys = one.distinct.iter().zip(&other.distinct);
        let keys: Vec<(f64, f64)> = keys.filter_map(|(one, other)| (*one).zip(*other)).collect();
        if keys.is_empty() {
            return None;
        }
        let set = one.set | other.set;
        let (rows, width) = *self.known.entry(set).or_insert_with(|| {
            let input = |of: &Joined| Input { rows: of.rows, source_rows: of.source_rows };
            let now = self.group.conditions.iter().zip(&self.kept).filter(|(condition, _)| {
                let needs = condition.relations();
                needs & set == needs && needs & one.set != needs && needs & other.set != needs
            });
            let kept: f64 = now.map(|(_, kept)| kept).product();
            let rows = joined_rows(input(one), input(other), &keys) * kept;
            (rows, width(self.group, &self.inputs, set))
        });
        let side = |of: &Joined| Side { rows: of.rows, width: of.width, is_split: false };
        let built =
            |build, probe| cost::cheapest(side(build), side(probe), rows, self.tasks, true).1;
        let first = built(one, other);
        let second = built(other, one);
        let (build, probe) = if first <= second { (one, other) } else { (other, one) };
        let distinct = build.distinct.iter().zip(&probe.distinct);
        let distinct = distinct.map(|(left, right)| match (left, right) {
            (Some(left), Some(right)) => Some(left.min(*right).min(rows)),
            (Some(left), None) => Some(distinct_of_some(*left, build.rows, rows)),
            (None, Some(right)) => Some(distinct_of_some(*right, probe.rows, rows)),
            (None, None) => None,
        });
        Some(Joined {
            set,
            rows,
            source_rows: one.source_rows.max(other.source_rows),
            width,
            cost: one.cost + other.cost + first.min(second),
            distinct: distinct.collect(),
            order: JoinTree::Join(Box::new(build.order.clone()), Box::new(probe.order.clone())),
        })
    }

    fn all_orders(&mut self) -> Option<Joined> {
        let count = self.group.relations.len();
        let all = (1_usize << count) - 1;
        let mut best: Vec<Option<Joined>> = vec![None; all + 1];
        for index in 0..count {
            best[1 << index] = Some(self.relation(index));
        }
        for set in 1..=all {
            // Each pair of parts once: the first one has the lowest relation.
            let lowest = set & set.wrapping_neg();
            let mut part = (set - 1) & set;
            while part > 0 {
                if part & lowest != 0
                    && let (Some(one), Some(other)) = (&best[part], &best[set ^ part])
                    && let Some(joined) = self.join(one, other)
                    && best[set].as_ref().is_none_or(|found| joined.cost < found.cost)
                {
                    best[set] = Some(joined);
                }
                part = (part - 1) & set;
            }
        }
        best.pop().flatten()
    }

    fn greedy(&mut self) -> Option<Joined> {
        let mut parts: Vec<Joined> =
            (0..self.group.relations.len()).map(|index| self.relation(index)).collect();
        while parts.len() > 1 {
            let mut best: Option<(usize, usize, Joined)> = None;
            for one in 0..parts.len() {
                for other in one + 1..parts.len() {
                    let Some(joined) = self.join(&parts[one], &parts[other]) else { continue };
                    let added = |joined: &Joined, (one, other): (usize, usize)| {
                        joined.cost - parts[one].cost - parts[other].cost
                    };
                    let better = best.as_ref().is_none_or(|(left, right, found)| {
                        added(&joined, (one, other)) < added(found, (*left, *right))
                    });
                    if better {
                        best = Some((one, other, joined));
                    }
                }
            }
            let (one, other, joined) = best?;
            parts.swap_remove(other);
            parts[one] = joined;
        }
        parts.pop()
    }

    /// A given order, with its cost.
    fn of_order(&mut self, order: &JoinTree) -> Option<Joined> {
        match order {
            JoinTree::Relation(index) => Some(self.relation(*index)),
            JoinTree::Join(one, other) => {
                let one = self.of_order(one)?;
                let other = self.of_order(other)?;
                self.join(&one, &other)
            }
        }
    }
}

/// Bytes of a row of joined relations: of the columns that are needed further up.
fn width(group: &JoinGroup, inputs: &[Estimate], set: u64) -> f64 {
    let within = |at: &RelationColumn| set & (1 << at.relation) != 0;
    let mut needed: BTreeSet<RelationColumn> =
        group.output.iter().copied().filter(within).collect();
    for class in group.classes.iter().filter(|class| !class.iter().all(within)) {
        needed.extend(class.iter().find(|at| within(at)));
    }
    for condition in &group.conditions {
        if condition.relations() & !set != 0 {
            needed.extend(condition.columns.iter().copied().filter(within));
        }
    }
    needed.iter().map(|at| inputs[at.relation].column(at.column).width).sum()
}
