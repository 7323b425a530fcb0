//! The build side and the mode of each hash join.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::projection::ProjectionExec;
use snowmelt_execute::tree::PlanNode;

use super::cost::{self, Mode, Side, Tasks};
use super::transformed;
use crate::estimate::estimate;
use crate::rules::joins::independent::returns_build_rows;

/// Selects the build side and the mode of a node, whose inputs are done.
pub(super) fn select(node: PlanNode, tasks: Tasks) -> Result<Transformed<PlanNode>> {
    let replacement = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        // Its sides and its mode are part of its meaning.
        if join.null_aware { None } else { Some(of_hash_join(join, &node, tasks)?) }
    } else if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
        let swap = is_larger(join.left(), join.right());
        swap.then(|| join.swap_inputs()).transpose()?
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let swap = join.join_type().supports_swap() && is_larger(join.left(), join.right());
        swap.then(|| join.swap_inputs()).transpose()?
    } else {
        None
    };
    Ok(transformed(node, replacement))
}

fn is_larger(left: &PlanNode, right: &PlanNode) -> bool {
    let bytes = |input| {
        let found = estimate(input);
        found.rows * found.width()
    };
    bytes(left) > bytes(right)
}

fn of_hash_join(join: &HashJoinExec, node: &PlanNode, tasks: Tasks) -> Result<PlanNode> {
    let left = keys(join, true);
    let right = keys(join, false);
    let left = side(join.left(), left.as_deref());
    let right = side(join.right(), right.as_deref());
    let rows = estimate(node).rows;
    let kind = *join.join_type();
    let can_collect = |kind: JoinType| tasks.most == 1 || !returns_build_rows(&kind);
    let kept = cost::cheapest(left, right, rows, tasks, can_collect(kind));
    let swapped = cost::cheapest(right, left, rows, tasks, can_collect(kind.swap()));
    let mode = |mode| match mode {
        Mode::Collected => PartitionMode::CollectLeft,
        Mode::Partitioned => PartitionMode::Partitioned,
    };
    match swapped.1 < kept.1 && kind.supports_swap() {
        true => join.swap_inputs(mode(swapped.0)),
        false => join.builder().with_partition_mode(mode(kept.0)).build_exec(),
    }
}

/// The columns of the keys on a side, if all keys are columns.
fn keys(join: &HashJoinExec, of_left: bool) -> Option<Vec<usize>> {
    let keys = join.on().iter().map(|(left, right)| index(if of_left { left } else { right }));
    keys.collect()
}

fn side(input: &PlanNode, keys: Option<&[usize]>) -> Side {
    let found = estimate(input);
    let is_split = keys.is_some_and(|keys| is_split_by(input, keys));
    Side { rows: found.rows, width: found.width(), is_split }
}

/// True if the rows of a node will be split by these columns in any case.
fn is_split_by(node: &PlanNode, columns: &[usize]) -> bool {
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let below = columns.iter().map(|column| index(&projection.expr().get(*column)?.expr));
        let below = below.collect::<Option<Vec<_>>>();
        return below.is_some_and(|columns| is_split_by(projection.input(), &columns));
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return match filter.projection() {
            Some(chosen) => {
                let below: Vec<usize> = columns.iter().map(|column| chosen[*column]).collect();
                is_split_by(filter.input(), &below)
            }
            None => is_split_by(filter.input(), columns),
        };
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return is_join_split_by(join, columns);
    }
    node.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        let count = aggregate.group_expr().expr().len();
        let mode = *aggregate.mode();
        matches!(mode, AggregateMode::FinalPartitioned | AggregateMode::SinglePartitioned)
            && !aggregate.group_expr().has_grouping_set()
            && same_columns(columns, &(0..count).collect::<Vec<_>>())
    })
}

/// Partitioned joins of the kinds that return one side's rows with its keys.
fn is_join_split_by(join: &HashJoinExec, columns: &[usize]) -> bool {
    if *join.partition_mode() != PartitionMode::Partitioned {
        return false;
    }
    let chosen: Vec<usize> = match join.projection.as_ref() {
        Some(projection) => columns.iter().map(|column| projection[*column]).collect(),
        None => columns.to_vec(),
    };
    let in_left = join.left().schema().fields().len();
    let left = keys(join, true);
    let right = keys(join, false);
    let of_right = |offset: usize| {
        right.as_ref().is_some_and(|keys| {
            let keys: Vec<usize> = keys.iter().map(|key| key + offset).collect();
            same_columns(&chosen, &keys)
        })
    };
    let of_left = left.as_ref().is_some_and(|keys| same_columns(&chosen, keys));
    match join.join_type() {
        JoinType::Inner => of_left || of_right(in_left),
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => of_left,
        JoinType::Right => of_right(in_left),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => of_right(0),
        JoinType::Full => false,
    }
}

fn same_columns(one: &[usize], other: &[usize]) -> bool {
    one.len() == other.len() && one.iter().all(|column| other.contains(column))
}

fn index(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}
