//! Replaces parts of expressions in plans.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};

/// Replaces parts of the expressions of a plan's node, the innermost first. `replace` is given the
/// columns that the expressions may name. The columns of the node keep their names, but not their
/// types.
pub fn replace_parts(
    plan: LogicalPlan,
    replace: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let replaced = expression.transform_up(|part| replace(part, &schema))?;
        Ok(replaced.update_data(|expression| name.restore(expression)))
    })
}

/// Whether an operator compares two values.
pub fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}
