//! An analyzer rule that checks the number of rows of subqueries.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, Subquery, col,
};
use datafusion::optimizer::AnalyzerRule;

use super::SingleRow;

/// Checks subqueries that do not refer to the outer query. A subquery that does must be an
/// aggregate, which DataFusion itself checks.
#[derive(Debug)]
pub struct CheckSubqueries {
    single_row: Arc<AggregateUDF>,
}

impl Default for CheckSubqueries {
    fn default() -> Self {
        Self { single_row: Arc::new(AggregateUDF::from(SingleRow::default())) }
    }
}

impl AnalyzerRule for CheckSubqueries {
    fn name(&self) -> &str {
        "check_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            plan.map_expressions(|expression| expression.transform_up(|part| self.checked(part)))
        })?;
        Ok(rewritten.data)
    }
}

impl CheckSubqueries {
    fn checked(&self, expression: Expr) -> Result<Transformed<Expr>> {
        let Expr::ScalarSubquery(subquery) = expression else {
            return Ok(Transformed::no(expression));
        };
        let is_single = subquery.subquery.max_rows().is_some_and(|rows| rows <= 1);
        if is_single || !subquery.outer_ref_columns.is_empty() {
            return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
        }
        let plan = self.single_row_of(&subquery.subquery)?;
        let checked = Subquery { subquery: Arc::new(plan), ..subquery };
        Ok(Transformed::yes(Expr::ScalarSubquery(checked)))
    }

    /// Returns a plan of the subquery's only row, with the same column.
    fn single_row_of(&self, plan: &Arc<LogicalPlan>) -> Result<LogicalPlan> {
        let (qualifier, field) = plan.schema().qualified_field(0);
        let column = Expr::from((qualifier, field));
        let call = Expr::AggregateFunction(AggregateFunction::new_udf(
            Arc::clone(&self.single_row),
            vec![column],
            false,
            None,
            Vec::new(),
            None,
        ));
        let aggregated = LogicalPlanBuilder::from(Arc::clone(plan))
            .aggregate(Vec::<Expr>::new(), vec![call])?
            .build()?;
        let name = aggregated.schema().field(0).name().clone();
        let named = col(datafusion::common::Column::from_name(name))
            .alias_qualified(qualifier.cloned(), field.name());
        LogicalPlanBuilder::from(aggregated).project(vec![named])?.build()
    }
}
