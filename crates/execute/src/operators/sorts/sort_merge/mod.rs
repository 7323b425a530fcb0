//! Joins by sorting both inputs, for a hash join whose build side does not fit into memory.
//!
//! The sorts put what does not fit into the scratch of their task. A worker joins one partition at a
//! time, so only the join in the task changes: what the stage reads and writes stays the same.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::sorts::sort::SortExec;

use super::not_in::not_in;
use super::sort::sorts_many;
use crate::operators::whole_windows::aggregates_whole_partitions;
use crate::tree::count;
use crate::udf;

/// How the keys of joins are sorted.
const ORDER: SortOptions = SortOptions { descending: false, nulls_first: true };

/// True if a plan has a hash join that can be done by sorting.
pub fn can_sort_merge(node: &Arc<dyn ExecutionPlan>) -> bool {
    let own = node.downcast_ref::<HashJoinExec>().is_some_and(can_be_sorted);
    own || node.children().into_iter().any(can_sort_merge)
}

/// True if a plan sorts many rows of an input, has groups, or windows whose rows are read twice: it
/// may need scratch.
pub fn may_spill(node: &Arc<dyn ExecutionPlan>) -> bool {
    let sorts = sorts_many(node) || node.is::<SortMergeJoinExec>();
    // A partial aggregation that is out of memory passes on the groups that it has.
    let groups = node.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        *aggregate.mode() != AggregateMode::Partial && !aggregate.group_expr().is_true_no_grouping()
    });
    let own = sorts || groups || aggregates_whole_partitions(node);
    own || node.children().into_iter().any(may_spill)
}

/// True if a plan holds rows or groups that go to scratch, or on to other tasks, once there is no
/// memory for them.
pub fn spills_sooner(node: &Arc<dyn ExecutionPlan>) -> bool {
    let groups = |it: &AggregateExec| !it.group_expr().is_true_no_grouping();
    let own = node.downcast_ref::<AggregateExec>().is_some_and(groups);
    own || may_spill(node) || node.children().into_iter().any(spills_sooner)
}

/// A plan for one task with joins by sorting instead of its hash joins, as far as possible.
pub(crate) fn with_sort_merge_joins(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(join) = node.downcast_ref::<HashJoinExec>() else {
            return Ok(Transformed::no(node));
        };
        // Partition i of a sorted join is that of both inputs.
        match can_be_sorted(join) && count(join.left()) == count(join.right()) {
            true => sorted(join, &node).map(Transformed::yes),
            false => Ok(Transformed::no(node)),
        }
    })
    .data()
}

/// True for a join whose keys can be compared and whose condition beside them is evaluated as a hash
/// join does.
fn can_be_sorted(join: &HashJoinExec) -> bool {
    let sides = [join.left().schema(), join.right().schema()];
    let kinds = |(left, right): &(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)| {
        [left.data_type(&sides[0]).ok(), right.data_type(&sides[1]).ok()]
    };
    let [before @ .., last] = join.on() else { return false };
    // Two zeros are equal, but one is sorted before the other: keys behind them have no order then.
    let first =
        before.iter().flat_map(kinds).all(|kind| kind.is_some_and(|kind| is_comparable(&kind)));
    // A NaN has no place among the keys that other joins than these compare between batches.
    let joins = matches!(join.join_type(), JoinType::Inner) || is_outer(join.join_type());
    let floats = |kind: &DataType| joins && matches!(kind, DataType::Float32 | DataType::Float64);
    let last = kinds(last).into_iter();
    first
        && last.flatten().filter(|kind| is_comparable(kind) || floats(kind)).count() == 2
        && join.fetch().is_none()
        && join.filter().is_none_or(|filter| can_be_evaluated(filter, join.join_type()))
        && (!join.null_aware || join.filter().is_none() && count(join.left()) == 1)
}

/// True for a join that fills missing rows with nulls.
fn is_outer(join: &JoinType) -> bool {
    matches!(join, JoinType::Left | JoinType::Right | JoinType::Full)
}

/// `SortMergeJoinExec` ignores a condition without columns. In an outer join it evaluates one also
/// for rows without a match, with nulls for the other side, which a user's function must not see.
fn can_be_evaluated(filter: &JoinFilter, join: &JoinType) -> bool {
    let calls = || udf::called_in(filter.expression()).map_or(true, |called| !called.is_empty());
    if is_outer(join) && calls() {
        return false;
    }
    !filter.column_indices().is_empty()
}

/// The types that `SortMergeJoinExec` compares, also with keys behind them.
fn is_comparable(kind: &DataType) -> bool {
    match kind {
        DataType::Timestamp(_, zone) => zone.is_none(),
        DataType::Boolean
        | DataType::Binary
        | DataType::BinaryView
        | DataType::LargeBinary
        | DataType::FixedSizeBinary(_)
        | DataType::Utf8
        | DataType::Utf8View
        | DataType::LargeUtf8
        | DataType::Decimal128(..)
        | DataType::Date32
        | DataType::Date64 => true,
        other => other.is_integer(),
    }
}

fn sorted(join: &HashJoinExec, node: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let keys = join.on();
    let left = by_keys(join.left(), keys.iter().map(|(left, _)| left));
    let right = by_keys(join.right(), keys.iter().map(|(_, right)| right));
    let sorted = SortMergeJoinExec::try_new(
        left,
        right,
        keys.to_vec(),
        join.filter().map(condition).transpose()?,
        *join.join_type(),
        vec![ORDER; keys.len()],
        join.null_equality(),
    )?;
    let mut plan: Arc<dyn ExecutionPlan> = match join.null_aware {
        true => not_in(sorted),
        false => Arc::new(sorted),
    };
    if let Some(projection) = &join.projection {
        let schema = plan.schema();
        let column = |index: &usize| {
            let name = schema.field(*index).name();
            ProjectionExpr::new(Arc::new(Column::new(name, *index)), name.clone())
        };
        let columns: Vec<ProjectionExpr> = projection.iter().map(column).collect();
        plan = Arc::new(ProjectionExec::try_new(columns, plan)?);
    }
    // Operators above may need the order of the probe side, which a hash join keeps.
    if let Some(order) = node.properties().output_ordering() {
        plan = Arc::new(SortExec::new(order.clone(), plan).with_preserve_partitioning(true));
    }
    Ok(plan)
}

/// A condition as `SortMergeJoinExec` needs it: the columns of the left side are before those of the
/// right one, and all may be null, since an outer join evaluates it for rows without a match too.
fn condition(filter: &JoinFilter) -> Result<JoinFilter> {
    let indices = filter.column_indices();
    let mut order: Vec<usize> = (0..indices.len()).collect();
    order.sort_by_key(|index| indices[*index].side == JoinSide::Right);
    let fields = order.iter().map(|index| filter.schema().field(*index).clone());
    let fields: Vec<_> = fields.map(|field| field.with_nullable(true)).collect();
    let moved = |node: Arc<dyn PhysicalExpr>| {
        let Some(column) = node.downcast_ref::<Column>() else { return Ok(Transformed::no(node)) };
        let index = order.iter().position(|index| *index == column.index());
        let moved = Column::new(column.name(), index.unwrap_or(column.index()));
        Ok(Transformed::yes(Arc::new(moved) as Arc<dyn PhysicalExpr>))
    };
    let expression = Arc::clone(filter.expression()).transform(moved).data()?;
    let indices = order.iter().map(|index| indices[*index].clone()).collect();
    Ok(JoinFilter::new(expression, indices, Arc::new(Schema::new(fields))))
}

fn by_keys<'k>(
    input: &Arc<dyn ExecutionPlan>,
    keys: impl Iterator<Item = &'k Arc<dyn PhysicalExpr>>,
) -> Arc<dyn ExecutionPlan> {
    let by = keys.map(|key| PhysicalSortExpr::new(Arc::clone(key), ORDER));
    match LexOrdering::new(by) {
        Some(order) => {
            Arc::new(SortExec::new(order, Arc::clone(input)).with_preserve_partitioning(true))
        }
        None => Arc::clone(input),
    }
}
