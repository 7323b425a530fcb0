//! Refuses what calls of the user's aggregate functions cannot have, before anything runs.
//!
//! Partial states of several workers are merged in any order, so an order of the rows would be lost;
//! and the states of other groups do not show which rows they have seen.

use datafusion::common::config::ConfigOptions;
use datafusion::common::not_impl_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition};
use datafusion::optimizer::AnalyzerRule;

use super::RemoteAggregate;

/// Checks the calls of aggregate functions of the user.
#[derive(Debug)]
pub struct CheckAggregateCalls;

impl AnalyzerRule for CheckAggregateCalls {
    fn name(&self) -> &str {
        "check_aggregate_calls"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expression| expression.apply(check))
        })?;
        Ok(plan)
    }
}

fn check(expression: &Expr) -> Result<TreeNodeRecursion> {
    match expression {
        Expr::AggregateFunction(call) => check_aggregate(call)?,
        Expr::WindowFunction(call) => check_window(call)?,
        _ => (),
    }
    Ok(TreeNodeRecursion::Continue)
}

fn check_aggregate(call: &AggregateFunction) -> Result<()> {
    let Some(function) = RemoteAggregate::inside(&call.func) else { return Ok(()) };
    let name = &function.wire_signature().name;
    if call.params.distinct {
        return not_impl_err!(
            "`{name}` cannot be called with DISTINCT: aggregate a subquery with SELECT DISTINCT"
        );
    }
    if !call.params.order_by.is_empty() {
        return not_impl_err!(
            "`{name}` cannot be called with ORDER BY: workers aggregate parts of the rows in any order"
        );
    }
    Ok(())
}

fn check_window(call: &WindowFunction) -> Result<()> {
    let WindowFunctionDefinition::AggregateUDF(function) = &call.fun else { return Ok(()) };
    match RemoteAggregate::inside(function) {
        None => Ok(()),
        Some(function) => not_impl_err!(
            "`{}` cannot be called with OVER: aggregate with GROUP BY, and join the result",
            function.wire_signature().name
        ),
    }
}
