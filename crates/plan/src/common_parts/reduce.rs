//! Semi joins that drop rows before they are exchanged or grouped.
//!
//! A join passes the keys of its build side to the scan of its probe side while it runs, but not
//! beyond a stage or an outer join. Where few keys of the probe side are wanted, and a stage, an
//! outer join or an aggregation is between the join and the scan, a semi join with the other side
//! is put below: `part JOIN (SELECT .. FROM lineitem GROUP BY partkey)` then groups only the lines
//! of these parts.
//!
//! The semi join reads the same output of a stage as the join itself, so nothing runs twice. Only
//! keys decide, so the semi join keeps at least the rows that the join needs.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use snowmelt_execute::tree::{PlanNode, address, count, with_children};

use crate::estimate::small_inputs::is_small;
use crate::estimate::{Estimate, estimate};
use crate::operators::is_nondeterministic;

/// Bytes of the largest side whose keys are passed on: every task reads it and keeps it in memory.
const MAX_BYTES: f64 = (16 << 20) as f64;

/// Bytes of the largest side whose keys are passed on where few tasks read it: for one task, and
/// for all tasks together.
const MAX_BYTES_OF_A_TASK: f64 = (48 << 20) as f64;
const MAX_BYTES_OF_ALL_TASKS: f64 = (128 << 20) as f64;

/// The largest part of the rows that may be left. Estimates are rough.
const MAX_KEPT: f64 = 0.4;

/// The cost of a row that is dropped too late, and of a row that is looked up, in nanoseconds,
/// roughly.
const SAVED: f64 = 100.0;
const LOOK_UP: f64 = 25.0;
/// The cost for each task of a row of the side with the keys, in nanoseconds, roughly.
const COLLECTED: f64 = 60.0;

/// Adds semi joins where they save work. For a plan whose distribution is enforced.
pub(crate) fn reduce(plan: PlanNode, tasks: usize) -> Result<PlanNode> {
    let mut reducer = Reducer { tasks, shared: HashSet::new(), kept: Vec::new() };
    reducer.node(&plan)
}

struct Reducer {
    tasks: usize,
    /// Nodes that the plan refers to twice, by address: a change of one would be a copy.
    shared: HashSet<usize>,
    // Keeps their addresses in use.
    kept: Vec<PlanNode>,
}

/// The keys of a join's other side.
struct SideKeys<'j> {
    join: &'j HashJoinExec,
    /// The plan of the other side, as one partition.
    side: PlanNode,
    rows: f64,
    /// Indexes of the keys among the columns of `side`.
    columns: Vec<usize>,
    distinct: Vec<f64>,
}

/// Some of the keys, in terms of a part of the side that is reduced: the number of the key, and the
/// column. Fewer keys drop fewer rows.
type Own = Vec<(usize, usize)>;

impl Reducer {
    fn node(&mut self, node: &PlanNode) -> Result<PlanNode> {
        let children = node.children().into_iter().map(|child| self.node(child));
        let node = with_children(node, children.collect::<Result<_>>()?)?;
        let Some(join) = node.downcast_ref::<HashJoinExec>().filter(|join| !join.null_aware) else {
            return Ok(node);
        };
        let sides = [(join.left(), join.right(), true), (join.right(), join.left(), false)];
        for (of, reduced, is_right) in sides {
            if !may_drop(join.join_type(), is_right) {
                continue;
            }
            let Some((read, keys, own)) = keys(join, of, is_right, self.tasks) else { continue };
            let Some(smaller) = self.below(reduced, &own, &keys, false)? else { continue };
            self.shared.insert(address(&read));
            self.kept.push(read);
            let children = match is_right {
                true => vec![Arc::clone(of), smaller],
                false => vec![smaller, Arc::clone(of)],
            };
            return with_children(&node, children);
        }
        Ok(node)
    }

    /// Puts the semi join as far down into a part of a plan as possible; `None` if it saves
    /// nothing. `worth` is true if it saves an operator above the part.
    fn below(
        &self,
        part: &PlanNode,
        own: &[(usize, usize)],
        keys: &SideKeys<'_>,
        worth: bool,
    ) -> Result<Option<PlanNode>> {
        let pushed = match self.shared.contains(&address(part)) {
            true => None,
            false => input(part, own),
        };
        if let Some((child, own)) = pushed {
            let children = part.children();
            let below = self.below(children[child], &own, keys, worth || is_costly(part))?;
            if let Some(below) = below {
                let mut children: Vec<PlanNode> = children.into_iter().cloned().collect();
                children[child] = below;
                return with_children(part, children).map(Some);
            }
        }
        match worth && self.saves(&estimate(part), own, keys) {
            true => semi_join(part, own, keys).map(Some),
            false => Ok(None),
        }
    }

    fn saves(&self, rows: &Estimate, own: &[(usize, usize)], keys: &SideKeys<'_>) -> bool {
        let of_key = |(key, column): &(usize, usize)| {
            keys.distinct[*key] / rows.column(*column).distinct.max(1.0)
        };
        let found = own.iter().map(of_key);
        let kept = found.fold(1.0, f64::min);
        let cost = LOOK_UP * rows.rows + COLLECTED * keys.rows * self.tasks as f64;
        kept <= MAX_KEPT && rows.rows * (1.0 - kept) * SAVED > 2.0 * cost
    }
}

/// True if a join returns no row of one side without a match on the other one.
fn may_drop(kind: &JoinType, of_right: bool) -> bool {
    match kind {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => true,
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => of_right,
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => !of_right,
        JoinType::Full => false,
    }
}

/// The keys of a side, if other tasks can read them without running it again; the node that they
/// read; and the keys in terms of the other side.
fn keys<'j>(
    join: &'j HashJoinExec,
    of: &PlanNode,
    is_left: bool,
    tasks: usize,
) -> Option<(PlanNode, SideKeys<'j>, Own)> {
    let mut theirs = Own::new();
    let mut own = Own::new();
    for (key, (left, right)) in join.on().iter().enumerate() {
        let left = index(left)?;
        let right = index(right)?;
        let (that, this) = if is_left { (left, right) } else { (right, left) };
        theirs.push((key, that));
        own.push((key, this));
    }
    let mut of = Arc::clone(of);
    // Below operators that drop rows there are all keys, and perhaps some more.
    while !is_readable(&of) {
        let (child, below) = input(&of, &theirs)?;
        (of, theirs) = (Arc::clone(of.children()[child]), below);
    }
    let found = estimate(&of);
    if theirs.len() < own.len() || found.rows * found.width() > most_bytes(tasks) {
        return None;
    }
    let columns: Vec<usize> = theirs.into_iter().map(|(_, column)| column).collect();
    let distinct = columns.iter().map(|column| found.column(*column).distinct).collect();
    let side: PlanNode = match of.is::<RepartitionExec>() {
        true => Arc::new(CoalescePartitionsExec::new(Arc::clone(&of))),
        false => Arc::clone(&of),
    };
    Some((of, SideKeys { join, side, rows: found.rows, columns, distinct }, own))
}

fn column(plan: &PlanNode, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(plan.schema().field(index).name(), index))
}

fn most_bytes(tasks: usize) -> f64 {
    (MAX_BYTES_OF_ALL_TASKS / tasks.max(1) as f64).clamp(MAX_BYTES, MAX_BYTES_OF_A_TASK)
}

/// True for the output of a stage, and for what tasks read themselves.
fn is_readable(node: &PlanNode) -> bool {
    node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || (count(node) == 1 && is_small(node))
}

/// `part` without the rows that have none of the keys.
fn semi_join(part: &PlanNode, own: &[(usize, usize)], keys: &SideKeys<'_>) -> Result<PlanNode> {
    let pair =
        |(key, own): &(usize, usize)| (column(&keys.side, keys.columns[*key]), column(part, *own));
    let on = own.iter().map(pair).collect();
    HashJoinExecBuilder::new(Arc::clone(&keys.side), Arc::clone(part), on, JoinType::RightSemi)
        .with_partition_mode(PartitionMode::CollectLeft)
        .with_null_equality(keys.join.null_equality())
        .build_exec()
}

/// True for operators that cost more for each row than the semi join.
fn is_costly(node: &PlanNode) -> bool {
    node.is::<RepartitionExec>()
        || node.is::<AggregateExec>()
        || node.is::<SortExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.downcast_ref::<HashJoinExec>().is_some_and(is_outer)
}

/// True for joins through which the keys of a build side are not passed while they run.
fn is_outer(join: &HashJoinExec) -> bool {
    matches!(
        join.join_type(),
        JoinType::Left | JoinType::Right | JoinType::LeftAnti | JoinType::RightAnti
    )
}

/// Returns the input that gives keys of a node's output, and the keys in terms of this input, if
/// rows can be dropped there instead. Keys that are computed, or come from elsewhere, are left out.
fn input(node: &PlanNode, keys: &[(usize, usize)]) -> Option<(usize, Own)> {
    if node.fetch().is_some() || is_nondeterministic(node) {
        return None;
    }
    let mapped = |place: &dyn Fn(usize) -> Option<usize>| -> Option<(usize, Own)> {
        let found = keys.iter().filter_map(|(key, column)| Some((*key, place(*column)?)));
        let found: Own = found.collect();
        (!found.is_empty()).then_some((0, found))
    };
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return mapped(&|column| index(&projection.expr().get(column)?.expr));
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let chosen = filter.projection().as_deref();
        return mapped(&|column| chosen.map_or(Some(column), |chosen| chosen.get(column).copied()));
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        let plain = !groups.has_grouping_set() && aggregate.limit_options().is_none();
        let below = plain.then(|| mapped(&|column| index(&groups.expr().get(column)?.0)));
        return below.flatten();
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return input_of_join(join, keys);
    }
    let passes = node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<SortExec>();
    passes.then(|| (0, keys.to_vec()))
}

fn input_of_join(join: &HashJoinExec, keys: &[(usize, usize)]) -> Option<(usize, Own)> {
    // Of the other side of an outer join, a row that is dropped gives nulls instead.
    let (from_left, from_right) = match join.join_type() {
        JoinType::Inner => (true, true),
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => (!join.null_aware, false),
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => (false, true),
        _ => return None,
    };
    // Where the columns of the right side begin.
    let start = match join.join_type() {
        JoinType::RightSemi | JoinType::RightAnti => 0,
        _ => join.left().schema().fields().len(),
    };
    let mut left = Own::new();
    let mut right = Own::new();
    for (key, column) in keys {
        let column = join.projection.as_ref().map_or(*column, |chosen| chosen[*column]);
        match column.checked_sub(start) {
            None => left.push((*key, column)),
            Some(column) => right.push((*key, column)),
        }
    }
    let best = match left.len() >= right.len() {
        true => (from_left, 0, left),
        false => (from_right, 1, right),
    };
    (best.0 && !best.2.is_empty()).then_some((best.1, best.2))
}

fn index(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}
