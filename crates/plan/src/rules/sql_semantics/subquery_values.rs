//! EXISTS and IN as values: in SELECT, in CASE, in the FILTER of an aggregate; and subqueries of any
//! kind in ORDER BY and in arguments of aggregates and window functions.
//!
//! DataFusion computes EXISTS and IN in conditions only, and a subquery that is a value only in
//! projections. Here, EXISTS is whether the number of rows is more than none, which is such a value,
//! and IN is made of the EXISTS that its three values need. Where no projection is, one is put below.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchemaRef, ExprSchema};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery, lit};

use super::null_in::three_valued;

/// The names of columns that are values of subqueries.
const PREFIX: &str = "subquery value";

/// Makes subqueries values wherever they are no conditions.
pub(super) fn as_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Projection(_) => in_place(node),
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_) => below(node),
        node => Ok(Transformed::no(node)),
    })
    .data()
}

fn is_condition(part: &Expr) -> bool {
    matches!(part, Expr::Exists(_) | Expr::InSubquery(_))
}

fn is_subquery(part: &Expr) -> bool {
    is_condition(part) || matches!(part, Expr::ScalarSubquery(_))
}

fn in_place(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let Some(schema) = node.inputs().first().map(|input| Arc::clone(input.schema())) else {
        return Ok(Transformed::no(node));
    };
    let names = NamePreserver::new(&node);
    let valued = node.map_expressions(|expr| {
        if !expr.exists(|part| Ok(is_condition(part)))? {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        Ok(Transformed::yes(name.restore(value(expr, &schema)?)))
    })?;
    match valued.transformed {
        true => valued.map_data(LogicalPlan::recompute_schema),
        false => Ok(valued),
    }
}

/// Puts a projection with the values of subqueries below an operator that is none.
fn below(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let Some(input) = node.inputs().first().map(|input| (*input).clone()) else {
        return Ok(Transformed::no(node));
    };
    let names = NamePreserver::new(&node);
    let mut values: Vec<Expr> = Vec::new();
    let node = node
        .map_expressions(|expr| {
            if !expr.exists(|part| Ok(is_subquery(part)))? {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            let expr = value(expr, input.schema())?.transform_up(|part| {
                let Expr::ScalarSubquery(_) = part else { return Ok(Transformed::no(part)) };
                let column = free_name(&input, values.len());
                values.push(part.alias(column.clone()));
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column))))
            })?;
            Ok(Transformed::yes(name.restore(expr.data)))
        })
        .data()?;
    if values.is_empty() {
        return Ok(Transformed::no(node));
    }
    let columns = input.schema().columns().into_iter().map(Expr::Column);
    let input = LogicalPlanBuilder::from(input.clone()).project(columns.chain(values))?.build()?;
    let before: Vec<Expr> = node.schema().columns().into_iter().map(Expr::Column).collect();
    let node = node.with_new_exprs(node.expressions(), vec![input])?;
    Ok(Transformed::yes(match node {
        LogicalPlan::Aggregate(_) => node,
        // The others pass their input on.
        node => LogicalPlanBuilder::from(node).project(before)?.build()?,
    }))
}

/// A name that no column of the input has: those of projections below it have smaller numbers.
fn free_name(input: &LogicalPlan, index: usize) -> String {
    format!("{PREFIX} {}", input.schema().fields().len() + index)
}

/// An expression whose subqueries are values.
fn value(expr: Expr, schema: &DFSchemaRef) -> Result<Expr> {
    let two_valued = |part: Expr| match part {
        Expr::InSubquery(asked) => Ok(Transformed::yes(contains(asked, schema)?)),
        Expr::Exists(asked) => Ok(Transformed::yes(exists(asked)?)),
        part => Ok(Transformed::no(part)),
    };
    let valued = expr.transform_up(|part| match part {
        Expr::InSubquery(asked) => {
            Ok(Transformed::yes(three_valued(asked, schema)?.transform_up(two_valued)?.data))
        }
        part => two_valued(part),
    });
    valued.data()
}

/// Whether there is a row. A number of rows has a value for outer rows without one, too.
fn exists(asked: Exists) -> Result<Expr> {
    let Exists { subquery, negated } = asked;
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let counted =
        LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?;
    let number = Expr::from(counted.schema().qualified_field(0));
    let some = match negated {
        true => number.eq(lit(0_i64)),
        false => number.gt(lit(0_i64)),
    };
    let plan = counted.project([some.alias("found")])?.build()?;
    Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery }))
}

/// Whether there is a row with this value: EXISTS with a condition on the outer row.
fn contains(asked: InSubquery, schema: &DFSchemaRef) -> Result<Expr> {
    let InSubquery { expr: key, subquery, negated } = asked;
    let key = key
        .transform_up(|part| match part {
            Expr::Column(column) => {
                let field = Arc::clone(schema.field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            part => Ok(Transformed::no(part)),
        })
        .data()?;
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let value = Expr::from(plan.schema().qualified_field(0));
    let plan = LogicalPlanBuilder::from(plan).filter(value.eq(key))?.build()?;
    let outer_ref_columns = plan.all_out_ref_exprs();
    let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans };
    exists(Exists { subquery, negated })
}
