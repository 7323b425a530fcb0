//! Derived tables in subqueries, with one row for each outer row:
//! `(SELECT c FROM (SELECT count(*) c FROM b WHERE b.k = a.k) d WHERE c > 0)`.
//!
//! DataFusion adds a column to the groups of such an aggregate, by which an outer row without a match
//! is known, and does not find it behind the name of the derived table. Here that name becomes one of
//! the columns.

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SubqueryAlias};

use super::outer_shape::{SubqueryRows, has_outer, rows};

/// Replaces the names of derived tables that refer to the outer query and have one row at most.
pub(super) fn without_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::SubqueryAlias(named) if is_single(&named.input)? => {
            Ok(Transformed::yes(with_names_of_columns(named)?))
        }
        node => Ok(Transformed::no(node)),
    })
    .data()
}

fn is_single(plan: &LogicalPlan) -> Result<bool> {
    Ok(has_outer(plan)? && matches!(rows(plan)?, SubqueryRows::One | SubqueryRows::OneIf(_)))
}

fn with_names_of_columns(named: SubqueryAlias) -> Result<LogicalPlan> {
    let within = named.input.schema().columns().into_iter();
    let names = named.schema.columns().into_iter();
    let columns = within
        .zip(names)
        .map(|(within, name)| Expr::Column(within).alias_qualified(name.relation, name.name));
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(named.input).project(columns)?.build()
}
