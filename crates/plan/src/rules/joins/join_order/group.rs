//! Inner joins that can be done in any order.
//!
//! A group is the largest tree of inner hash joins, and of projections between them that only
//! choose columns. Its relations are the plans below the tree. Equalities are kept as classes of
//! equal columns: from `a.x = b.x` and `b.x = c.x` follows `a.x = c.x`, which allows to join `a`
//! with `c`.
//!
//! Invariant: a class has at most one column of each relation, so that a join that compares one
//! column of each side for each class compares everything that the original joins compare.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::projection::ProjectionExec;

/// The most relations of a group, which are numbered in a set of bits.
const MAX_RELATIONS: usize = 64;

/// A column of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RelationColumn {
    pub(super) relation: usize,
    pub(super) column: usize,
}

/// A condition beside the equalities. Its columns are numbered as in `columns`.
#[derive(Clone, Debug)]
pub(super) struct GroupCondition {
    pub(super) expr: Arc<dyn PhysicalExpr>,
    pub(super) columns: Vec<RelationColumn>,
}

impl GroupCondition {
    /// The relations of its columns, as a set of bits.
    pub(super) fn relations(&self) -> u64 {
        self.columns.iter().fold(0, |set, at| set | (1 << at.relation))
    }
}

/// An order of joins: the left side of each is its build side.
#[derive(Clone, Debug)]
pub(super) enum JoinTree {
    Relation(usize),
    Join(Box<JoinTree>, Box<JoinTree>),
}

/// Inner joins that can be done in any order.
#[derive(Debug)]
pub(super) struct JoinGroup {
    pub(super) relations: Vec<Arc<dyn ExecutionPlan>>,
    /// Columns that are equal.
    pub(super) classes: Vec<Vec<RelationColumn>>,
    pub(super) conditions: Vec<GroupCondition>,
    /// The columns of the output, as columns of the relations.
    pub(super) output: Vec<RelationColumn>,
    /// The order in the query.
    pub(super) written: JoinTree,
}

impl JoinGroup {
    /// The group whose uppermost join is this one.
    pub(super) fn of(node: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        joined(node)?;
        let mut group = Self {
            relations: Vec::new(),
            classes: Vec::new(),
            conditions: Vec::new(),
            output: Vec::new(),
            written: JoinTree::Relation(0),
        };
        (group.output, group.written) = group.add(node)?;
        (group.relations.len() <= MAX_RELATIONS).then_some(group)
    }

    /// Adds a part of the tree. Returns its columns, as columns of the relations, and its order of
    /// joins.
    fn add(&mut self, node: &Arc<dyn ExecutionPlan>) -> Option<(Vec<RelationColumn>, JoinTree)> {
        if let Some(join) = joined(node) {
            return self.add_join(join);
        }
        if let Some((projection, indices)) = chosen(node)
            && is_in_group(projection.input())
        {
            let (columns, order) = self.add(projection.input())?;
            return Some((indices.into_iter().map(|index| columns[index]).collect(), order));
        }
        let relation = self.relations.len();
        let columns = 0..node.schema().fields().len();
        self.relations.push(Arc::clone(node));
        Some((
            columns.map(|column| RelationColumn { relation, column }).collect(),
            JoinTree::Relation(relation),
        ))
    }

    fn add_join(&mut self, join: &HashJoinExec) -> Option<(Vec<RelationColumn>, JoinTree)> {
        let (mut columns, left) = self.add(join.left())?;
        let (others, right) = self.add(join.right())?;
        for (one, other) in join.on() {
            self.equate(columns[index(one)?], others[index(other)?]);
        }
        for condition in join.filter().into_iter().flat_map(parts) {
            let expr = condition?;
            let place = |at: &(JoinSide, usize)| match at.0 {
                JoinSide::Left => columns[at.1],
                _ => others[at.1],
            };
            let columns = expr.1.iter().map(place).collect();
            self.conditions.push(GroupCondition { expr: expr.0, columns });
        }
        columns.extend(others);
        let output = match join.projection.as_ref() {
            Some(projection) => projection.iter().map(|index| columns[*index]).collect(),
            None => columns,
        };
        Some((output, JoinTree::Join(Box::new(left), Box::new(right))))
    }

    /// Notes that two columns are equal.
    fn equate(&mut self, one: RelationColumn, other: RelationColumn) {
        let class_of =
            |at: RelationColumn| self.classes.iter().position(|class| class.contains(&at));
        let first = class_of(one);
        let second = class_of(other);
        if first.is_some() && first == second {
            return;
        }
        let members = |class: Option<usize>, at: RelationColumn| match class {
            Some(class) => self.classes[class].clone(),
            None => vec![at],
        };
        let mut merged = members(first, one);
        merged.extend(members(second, other));
        let relations: BTreeSet<usize> = merged.iter().map(|at| at.relation).collect();
        if relations.len() < merged.len() || !self.have_one_type(&merged) {
            self.classes.push(vec![one, other]);
            return;
        }
        let keep = first.min(second);
        let drop = first.max(second);
        match (keep, drop) {
            (Some(keep), Some(drop)) => {
                self.classes[keep] = merged;
                self.classes.remove(drop);
            }
            (None, Some(class)) => self.classes[class] = merged,
            _ => self.classes.push(merged),
        }
    }

    fn have_one_type(&self, columns: &[RelationColumn]) -> bool {
        let mut types = columns
            .iter()
            .map(|at| self.relations[at.relation].schema().field(at.column).data_type().clone());
        let first = types.next();
        types.all(|other| first.as_ref() == Some(&other))
    }
}

/// A join that can change its place.
fn joined(node: &Arc<dyn ExecutionPlan>) -> Option<&HashJoinExec> {
    let join = node.downcast_ref::<HashJoinExec>()?;
    let keys = join.on().iter().all(|(one, other)| index(one).is_some() && index(other).is_some());
    // Among them are the functions of users: they would be called for other rows.
    let volatile = join.filter().is_some_and(|filter| is_volatile(filter.expression()));
    let free = *join.join_type() == JoinType::Inner
        && join.null_equality() == NullEquality::NullEqualsNothing
        && node.fetch().is_none();
    (free && keys && !volatile && !join.on().is_empty()).then_some(join)
}

/// A projection that only chooses columns, and their indices.
fn chosen(node: &Arc<dyn ExecutionPlan>) -> Option<(&ProjectionExec, Vec<usize>)> {
    let projection = node.downcast_ref::<ProjectionExec>()?;
    let indices = projection.expr().iter().map(|projected| index(&projected.expr));
    Some((projection, indices.collect::<Option<_>>()?))
}

fn is_in_group(node: &Arc<dyn ExecutionPlan>) -> bool {
    let below = || chosen(node).is_some_and(|(projection, _)| is_in_group(projection.input()));
    joined(node).is_some() || below()
}

fn index(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

/// A part of a join's condition, with its columns numbered anew; and the columns.
type ConditionPart = (Arc<dyn PhysicalExpr>, Vec<(JoinSide, usize)>);

fn parts(filter: &JoinFilter) -> impl Iterator<Item = Option<ConditionPart>> + '_ {
    let places = filter.column_indices();
    split_conjunction(filter.expression()).into_iter().map(move |part| {
        let used: BTreeSet<usize> = collect_columns(part).iter().map(Column::index).collect();
        let used: Vec<usize> = used.into_iter().collect();
        let columns = used.iter().map(|index| {
            let place = places.get(*index)?;
            (place.side != JoinSide::None).then_some((place.side, place.index))
        });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        Some((renumbered(part, &used)?, columns))
    })
}

/// An expression whose column `used[i]` is column `i`.
fn renumbered(expr: &Arc<dyn PhysicalExpr>, used: &[usize]) -> Option<Arc<dyn PhysicalExpr>> {
    let renumbered = Arc::clone(expr).transform_up(|part| {
        let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        let place = used.iter().position(|index| *index == column.index());
        let column = Column::new(column.name(), place.unwrap_or(usize::MAX));
        Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
    });
    renumbered.data().ok()
}
