//! Subqueries in LATERAL: the rows of a subquery for each row of the tables before it.
//!
//! DataFusion moves the conditions on these tables above the rest of the subquery and makes it a join.
//! That is right for filters, projections and groups. It refuses limits and values of the outer row, and
//! numbers the rows of windows over all outer rows. Here, the subquery is computed for each different
//! combination of the outer columns that it refers to (`inner`), and is joined with the outer rows by
//! these columns.

mod groups;
mod inner;
mod parts;
mod tables;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};

use super::outer_shape::{SubqueryRows, has_outer, rows};
use inner::Outer;

/// Joins the subqueries of LATERAL that DataFusion refuses, or would not compute for each outer row.
pub(crate) fn join_lateral(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut joins = 0;
    let written = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Join(join) = node else { return Ok(Transformed::no(node)) };
        // The planner does not mark a subquery that refers to the left side from within another one.
        parts::check_subqueries(&join.right, join.left.schema())?;
        if !parts::is_lateral(&join.right) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let columns = outer_columns(&join)?;
        if columns.is_empty() || is_plain(&join.right)? {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        joins += 1;
        Ok(Transformed::yes(joined(join, columns, joins)?))
    })?;
    match written.transformed {
        // Columns of the subquery may be null now, for all that is above.
        true => written
            .data
            .transform_up_with_subqueries(|node| node.recompute_schema().map(Transformed::yes))
            .data(),
        false => Ok(written.data),
    }
}

/// The columns of the left side that the right side refers to.
fn outer_columns(join: &Join) -> Result<Vec<Column>> {
    let mut found: Vec<Column> = Vec::new();
    if !has_outer(&join.right)? {
        return Ok(found);
    }
    join.right.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::OuterReferenceColumn(_, column) = part
                    && join.left.schema().has_column(column)
                    && !found.contains(column)
                {
                    found.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// Whether a subquery refers to the outer query in filters alone, and has no groups: its rows are
/// those of a join.
fn is_plain(right: &LogicalPlan) -> Result<bool> {
    let mut in_filters = true;
    right.apply(|node| {
        let is_filter = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Subquery(_));
        let has_groups = matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_));
        in_filters &= is_filter || !node.contains_outer_reference();
        in_filters &= !has_groups || !has_outer(node)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(in_filters && matches!(rows(right)?, SubqueryRows::OfJoin))
}

fn joined(join: Join, columns: Vec<Column>, number: usize) -> Result<LogicalPlan> {
    let Join { left, right, on, filter, join_type, schema, .. } = join;
    if !matches!(join_type, JoinType::Inner | JoinType::Left) {
        return Err(parts::refused("LATERAL in a right or full join is not supported"));
    }
    parts::check_types(&columns, left.schema())?;
    if parts::varies(&left, &columns)? {
        return Err(parts::refused(
            "LATERAL behind a table that may have other rows when it is read again is not supported",
        ));
    }
    let outer = Outer::new(&parts::unlimited(&left)?, columns, number)?;
    let inner = outer.rows_of(&right)?;
    let mut conditions = Vec::new();
    for (place, column) in outer.columns.iter().enumerate() {
        conditions.push(same(left.schema(), column, outer.value(place, &inner)?)?);
    }
    conditions.extend(on.into_iter().map(|(one, other)| one.eq(other)));
    conditions.extend(filter.filter(|filter| !is_true(filter)));
    LogicalPlanBuilder::from(Arc::unwrap_or_clone(left))
        .join_on(inner, join_type, conditions)?
        .project(schema.columns().into_iter().map(Expr::Column))?
        .build()
}

/// Whether an outer column has a value, as which null counts.
fn same(schema: &DFSchema, column: &Column, value: Expr) -> Result<Expr> {
    let nullable = schema.field_from_column(column)?.is_nullable();
    let column = Expr::Column(column.clone());
    Ok(match nullable {
        true => parts::is_same(column, value),
        false => column.eq(value),
    })
}

fn is_true(condition: &Expr) -> bool {
    matches!(condition, Expr::Literal(ScalarValue::Boolean(Some(true)), _))
}
