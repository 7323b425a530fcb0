//! Checks whether a subquery can be computed for the values of outer columns.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, binary_expr};
use snowmelt_types::{Code, ErrorReport};

/// Equality that holds for two nulls.
pub(super) fn is_same(one: Expr, other: Expr) -> Expr {
    binary_expr(one, Operator::IsNotDistinctFrom, other)
}

/// Whether the right side of a join is a subquery that refers to something outside.
pub(super) fn is_lateral(right: &LogicalPlan) -> bool {
    match right {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(it) => is_lateral(&it.input),
        LogicalPlan::Projection(it) => is_lateral(&it.input),
        LogicalPlan::Filter(it) => is_lateral(&it.input),
        _ => false,
    }
}

/// Whether values of a plan's columns may be others when it is computed again: those of random
/// numbers, of a limit without an order, or what a sum of doubles or a list has by the order of rows.
pub(super) fn varies(plan: &LogicalPlan, columns: &[Column]) -> Result<bool> {
    let schema = plan.schema();
    let depends = |column: &Column| {
        let data_type = schema.field_from_column(column)?.data_type();
        Ok::<_, DataFusionError>(data_type.is_floating() || data_type.is_nested())
    };
    let depends: Vec<bool> = columns.iter().map(depends).collect::<Result<_>>()?;
    let by_order = depends.contains(&true);
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Limit(limit) => found |= !is_sorted(&limit.input),
            LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => found |= by_order,
            _ => {}
        }
        node.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// A plan with the rows of another one and perhaps more: without the limits at its top, which choose
/// one of several rows that are equal for their order, and may choose another one the next time.
pub(super) fn unlimited(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let inputs = match plan {
        LogicalPlan::Limit(it) => return unlimited(&it.input),
        LogicalPlan::Sort(it) => return unlimited(&it.input),
        LogicalPlan::SubqueryAlias(it) => vec![unlimited(&it.input)?],
        LogicalPlan::Projection(it) => vec![unlimited(&it.input)?],
        LogicalPlan::Join(it) if it.join_type == JoinType::Inner => {
            vec![unlimited(&it.left)?, unlimited(&it.right)?]
        }
        plan => return Ok(plan.clone()),
    };
    plan.with_new_exprs(plan.expressions(), inputs)
}

fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(it) => is_sorted(&it.input),
        LogicalPlan::SubqueryAlias(it) => is_sorted(&it.input),
        _ => false,
    }
}

/// Refuses expressions with subqueries that refer past the subquery around them.
pub(super) fn check_subqueries(plan: &LogicalPlan, outer: &DFSchema) -> Result<()> {
    plan.apply(|node| {
        let inputs = node.inputs();
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                let asked = match part {
                    Expr::ScalarSubquery(asked) => asked,
                    Expr::Exists(exists) => &exists.subquery,
                    Expr::InSubquery(contains) => &contains.subquery,
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                let passes = asked.outer_ref_columns.iter().any(|part| match part {
                    Expr::OuterReferenceColumn(_, column) => {
                        outer.has_column(column)
                            && !inputs.iter().any(|input| input.schema().has_column(column))
                    }
                    _ => false,
                });
                match passes {
                    true => Err(too_deep()),
                    false => Ok(TreeNodeRecursion::Continue),
                }
            })
        })
    })?;
    Ok(())
}

fn too_deep() -> DataFusionError {
    let message =
        "a subquery inside of LATERAL that refers to a table before LATERAL is not supported";
    let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, message);
    let hint = "write it as a join with a table in FROM of the lateral subquery";
    DataFusionError::External(Box::new(report.hint(hint)))
}

/// Refuses columns of intervals. Those of one length are one value of a group, and add up otherwise.
pub(super) fn check_types(columns: &[Column], outer: &DFSchema) -> Result<()> {
    for column in columns {
        if matches!(outer.field_from_column(column)?.data_type(), DataType::Interval(_)) {
            let name = &column.name;
            return Err(refused(&format!(
                "LATERAL with the column `{name}` of intervals is not supported"
            )));
        }
    }
    Ok(())
}

/// The error of a subquery that cannot be computed for each outer row.
pub(super) fn refused(message: &str) -> DataFusionError {
    const HINT: &str = "write it as a join with a subquery that has the columns to join by: with \
                        row_number() OVER (PARTITION BY …) for the first rows of each";
    let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, message).hint(HINT);
    DataFusionError::External(Box::new(report))
}
