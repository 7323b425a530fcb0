//! The plan of a group in another order.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExecBuilder, JoinOn};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::group::{JoinGroup, JoinTree, RelationColumn};

/// The plan of joined relations, with its columns as columns of the relations.
struct RelationPlan {
    plan: Arc<dyn ExecutionPlan>,
    columns: Vec<RelationColumn>,
}

impl RelationPlan {
    fn position(&self, at: RelationColumn) -> Option<usize> {
        self.columns.iter().position(|column| *column == at)
    }
}

/// The joins of a group in some order, with the output of `before`.
pub(super) fn plan(
    group: &JoinGroup,
    order: &JoinTree,
    before: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let needed: BTreeSet<RelationColumn> = group.output.iter().copied().collect();
    let part = part(group, order, &needed)?;
    let schema = before.schema();
    let columns = group.output.iter().zip(schema.fields()).map(|(at, field)| {
        let position = part.position(*at).ok_or_else(missing)?;
        let column = Column::new(part.plan.schema().field(position).name(), position);
        Ok(ProjectionExpr { expr: Arc::new(column), alias: field.name().clone() })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(ProjectionExec::try_new(columns, part.plan)?))
}

/// The joins of a part of the order, which gives at least the columns that are needed.
fn part(
    group: &JoinGroup,
    order: &JoinTree,
    needed: &BTreeSet<RelationColumn>,
) -> Result<RelationPlan> {
    let (left, right) = match order {
        JoinTree::Join(left, right) => (left, right),
        JoinTree::Relation(relation) => {
            let plan = Arc::clone(&group.relations[*relation]);
            let count = plan.schema().fields().len();
            let columns =
                (0..count).map(|column| RelationColumn { relation: *relation, column }).collect();
            return Ok(RelationPlan { plan, columns });
        }
    };
    let in_left = relations(left);
    let in_right = relations(right);
    let keys = keys(group, in_left, in_right);
    let conditions: Vec<_> = group
        .conditions
        .iter()
        .filter(|condition| {
            let used = condition.relations();
            let within = |set| used & set == used;
            within(in_left | in_right) && !(within(in_left) || within(in_right))
        })
        .collect();
    let mut below = needed.clone();
    below.extend(keys.iter().flat_map(|(one, other)| [*one, *other]));
    below.extend(conditions.iter().flat_map(|condition| condition.columns.iter().copied()));
    let left = part(group, left, &below)?;
    let right = part(group, right, &below)?;
    let conditions =
        conditions.iter().map(|condition| (&condition.expr, condition.columns.as_slice()));
    let filter = filter(conditions, &left, &right)?;
    let on = keys.iter().map(|(one, other)| Ok((column(&left, *one)?, column(&right, *other)?)));
    let on = on.collect::<Result<_>>()?;
    join(left, right, on, filter, needed)
}

fn join(
    left: RelationPlan,
    right: RelationPlan,
    on: JoinOn,
    filter: Option<JoinFilter>,
    needed: &BTreeSet<RelationColumn>,
) -> Result<RelationPlan> {
    let all: Vec<RelationColumn> = left.columns.iter().chain(&right.columns).copied().collect();
    let kept: Vec<usize> = (0..all.len()).filter(|index| needed.contains(&all[*index])).collect();
    let columns: Vec<RelationColumn> = kept.iter().map(|index| all[*index]).collect();
    let projection = (kept.len() < all.len()).then_some(kept);
    let plan = HashJoinExecBuilder::new(left.plan, right.plan, on, JoinType::Inner)
        .with_filter(filter)
        .with_projection(projection)
        .build_exec()?;
    Ok(RelationPlan { plan, columns })
}

fn relations(order: &JoinTree) -> u64 {
    match order {
        JoinTree::Relation(relation) => 1 << relation,
        JoinTree::Join(left, right) => relations(left) | relations(right),
    }
}

/// Returns a pair of columns, one of each side, for each class of equal columns that both sides
/// have columns of.
fn keys(group: &JoinGroup, left: u64, right: u64) -> Vec<(RelationColumn, RelationColumn)> {
    let within = |class: &[RelationColumn], set: u64| {
        class.iter().find(|at| (1_u64 << at.relation) & set != 0).copied()
    };
    let classes = group.classes.iter();
    classes.filter_map(|class| Some((within(class, left)?, within(class, right)?))).collect()
}

fn column(part: &RelationPlan, at: RelationColumn) -> Result<Arc<dyn PhysicalExpr>> {
    let position = part.position(at).ok_or_else(missing)?;
    Ok(Arc::new(Column::new(part.plan.schema().field(position).name(), position)))
}

/// The conditions as the filter of a join.
fn filter<'c>(
    conditions: impl Iterator<Item = (&'c Arc<dyn PhysicalExpr>, &'c [RelationColumn])>,
    left: &RelationPlan,
    right: &RelationPlan,
) -> Result<Option<JoinFilter>> {
    let mut places = Vec::new();
    let mut fields = Vec::new();
    let mut parts = Vec::new();
    for (expr, columns) in conditions {
        let start = places.len();
        for at in columns {
            let (side, part) = match left.position(*at) {
                Some(_) => (JoinSide::Left, left),
                None => (JoinSide::Right, right),
            };
            let index = part.position(*at).ok_or_else(missing)?;
            places.push(ColumnIndex { index, side });
            fields.push(part.plan.schema().field(index).clone());
        }
        parts.push(shifted(expr, start)?);
    }
    let schema = Arc::new(Schema::new(fields));
    Ok((!parts.is_empty()).then(|| JoinFilter::new(conjunction(parts), places, schema)))
}

/// An expression whose columns begin at `start`.
fn shifted(expr: &Arc<dyn PhysicalExpr>, start: usize) -> Result<Arc<dyn PhysicalExpr>> {
    let shifted = Arc::clone(expr).transform_up(|part| {
        let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        let column = Column::new(column.name(), column.index() + start);
        Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
    });
    shifted.data()
}

fn missing() -> DataFusionError {
    DataFusionError::Internal("a column of a join is missing in its inputs".to_owned())
}
