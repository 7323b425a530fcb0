//! Semi joins below joins: `(a JOIN b) SEMI JOIN c` becomes `(a SEMI JOIN c) JOIN b` where only
//! columns of `a` are compared with `c`.
//!
//! `IN` and `EXISTS` become semi joins above all joins of the FROM clause. A semi join keeps or
//! drops a row by its keys alone, whatever equality it has for nulls, and never repeats a row. So
//! it gives the same below any join that passes on each row of `a` as often as others with the same
//! keys, and there it saves the join the rows that it drops.
//!
//! Anti joins could be moved in the same way. They stay, because they usually drop few rows and
//! would have to look up all rows of a table instead of those that a join has left.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::logical_expr::logical_plan::{Projection, SubqueryAlias};
use datafusion::logical_expr::{Cast, Expr, Join, LogicalPlan, TryCast};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Moves semi joins down. None of DataFusion's rules moves them up.
#[derive(Debug)]
pub(crate) struct PushDownSemiJoins;

impl OptimizerRule for PushDownSemiJoins {
    fn name(&self) -> &str {
        "push_down_semi_joins"
    }

    /// Begins below, so that of two semi joins the lower one is out of the way of the upper one.
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let moved = match &plan {
            LogicalPlan::Join(semi) if is_movable(semi) => {
                let keys: Vec<Expr> = semi.on.iter().map(|(key, _)| key.clone()).collect();
                below(&semi.left, semi, &keys)?
            }
            _ => None,
        };
        Ok(moved.map_or_else(|| Transformed::no(plan), Transformed::yes))
    }
}

/// True if a semi join may be moved. A condition beside the keys could refer to both sides of the
/// join below. Keys other than columns could cost more for the rows of a table than for the rows
/// that the join below leaves.
fn is_movable(join: &Join) -> bool {
    join.join_type == JoinType::LeftSemi
        && join.filter.is_none()
        && !join.on.is_empty()
        && join.on.iter().all(|(key, _)| is_cheap(key))
}

fn is_cheap(key: &Expr) -> bool {
    match key {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => {
            matches!(expr.as_ref(), Expr::Column(_))
        }
        _ => false,
    }
}

/// Returns `plan` with the semi join below its uppermost join, as far down as possible; `None` if
/// there is no join or if it is not possible. `keys` are the keys of the semi join in terms of
/// `plan`.
fn below(plan: &LogicalPlan, semi: &Join, keys: &[Expr]) -> Result<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Join(join) => below_join(join, semi, keys)?.map(LogicalPlan::Join),
        LogicalPlan::Projection(Projection { expr, input, schema, .. }) => {
            let source = |index: usize| match unaliased(expr.get(index)?) {
                Expr::Column(column) => Some(column.clone()),
                _ => None,
            };
            let Some(keys) = renamed(keys, schema, source)? else { return Ok(None) };
            let Some(input) = below(input, semi, &keys)? else { return Ok(None) };
            Some(LogicalPlan::Projection(Projection::try_new(expr.clone(), Arc::new(input))?))
        }
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, schema, .. }) => {
            let source = |index| column_at(input.schema(), index);
            let Some(keys) = renamed(keys, schema, source)? else { return Ok(None) };
            let Some(moved) = below(input, semi, &keys)? else { return Ok(None) };
            Some(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(
                Arc::new(moved),
                alias.clone(),
            )?))
        }
        _ => None,
    })
}

fn below_join(join: &Join, semi: &Join, keys: &[Expr]) -> Result<Option<Join>> {
    // Of the other sides of outer joins, rows without a match also give a row.
    let (into_left, into_right) = match join.join_type {
        JoinType::Inner => (true, true),
        JoinType::Left => (true, false),
        JoinType::Right => (false, true),
        _ => return Ok(None),
    };
    // A volatile condition would be evaluated for other rows.
    let conditions = join.on.iter().flat_map(|(left, right)| [left, right]).chain(&join.filter);
    if conditions.into_iter().any(Expr::is_volatile) {
        return Ok(None);
    }
    let in_left = join.left.schema().fields().len();
    let left = |index: usize| column_at(join.left.schema(), index);
    let right = |index: usize| column_at(join.right.schema(), index.checked_sub(in_left)?);
    let mut sides = [Arc::clone(&join.left), Arc::clone(&join.right)];
    let moved = keys;
    if into_left && let Some(keys) = renamed(moved, &join.schema, left)? {
        sides[0] = Arc::new(with_semi_join(&join.left, semi, keys)?);
    } else if into_right && let Some(keys) = renamed(moved, &join.schema, right)? {
        sides[1] = Arc::new(with_semi_join(&join.right, semi, keys)?);
    } else {
        return Ok(None);
    }
    let [left, right] = sides;
    let again = Join::try_new(
        left,
        right,
        join.on.clone(),
        join.filter.clone(),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    Ok(Some(again))
}

/// The semi join over or within `side`.
fn with_semi_join(side: &Arc<LogicalPlan>, semi: &Join, keys: Vec<Expr>) -> Result<LogicalPlan> {
    if let Some(further) = below(side, semi, &keys)? {
        return Ok(further);
    }
    let values = semi.on.iter().map(|(_, value)| value.clone());
    Ok(LogicalPlan::Join(Join::try_new(
        Arc::clone(side),
        Arc::clone(&semi.right),
        keys.into_iter().zip(values).collect(),
        None,
        semi.join_type,
        semi.join_constraint,
        semi.null_equality,
        semi.null_aware,
    )?))
}

/// The keys in terms of an input: `source` gives the input's column for a column of `schema`. `None`
/// if one of them is not a column of the input.
fn renamed(
    keys: &[Expr],
    schema: &DFSchema,
    source: impl Fn(usize) -> Option<Column>,
) -> Result<Option<Vec<Expr>>> {
    let mut all_found = true;
    let mut rename = |part: Expr| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        match schema.index_of_column(column).ok().and_then(&source) {
            Some(column) => Ok(Transformed::yes(Expr::Column(column))),
            None => {
                all_found = false;
                Ok(Transformed::no(part))
            }
        }
    };
    let renamed = keys.iter().map(|key| Ok(key.clone().transform(&mut rename)?.data));
    let renamed = renamed.collect::<Result<_>>()?;
    Ok(all_found.then_some(renamed))
}

/// A column by position; `None` beyond the last, and if its name means another column.
fn column_at(schema: &DFSchema, index: usize) -> Option<Column> {
    if index >= schema.fields().len() {
        return None;
    }
    let column = Column::from(schema.qualified_field(index));
    (schema.index_of_column(&column).ok() == Some(index)).then_some(column)
}

fn unaliased(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
