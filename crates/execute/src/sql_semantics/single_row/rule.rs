//! An analyzer rule that checks the number of rows of subqueries that are used as values.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    AggregateUDF, Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF, Subquery, col,
};
use datafusion::optimizer::AnalyzerRule;

use super::{SingleRow, nullable};

/// Checks subqueries that do not refer to the outer query. A subquery that does must be an
/// aggregate, which DataFusion itself checks.
///
/// A subquery without a row is null. DataFusion takes it for never null if its column is not, and
/// drops `coalesce` and `is null` around it; here the column becomes nullable.
#[derive(Debug)]
pub struct CheckSubqueries {
    single_row: Arc<AggregateUDF>,
    nullable: Arc<ScalarUDF>,
}

impl Default for CheckSubqueries {
    fn default() -> Self {
        Self {
            single_row: Arc::new(AggregateUDF::from(SingleRow::default())),
            nullable: Arc::new(ScalarUDF::from(nullable::function())),
        }
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
        let plan = &subquery.subquery;
        let is_single = plan.max_rows().is_some_and(|rows| rows <= 1);
        let is_correlated = !subquery.outer_ref_columns.is_empty();
        let is_null_without_row = plan.schema().field(0).is_nullable() || has_a_row(plan);
        let plan = match (is_single || is_correlated, is_null_without_row) {
            (true, true) => return Ok(Transformed::no(Expr::ScalarSubquery(subquery))),
            (true, false) if is_correlated => self.nullable_of(plan)?,
            // The aggregate of the only row is nullable.
            _ => self.single_row_of(plan)?,
        };
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

    /// Returns the plan with a nullable column of the same values.
    fn nullable_of(&self, plan: &Arc<LogicalPlan>) -> Result<LogicalPlan> {
        let (qualifier, field) = plan.schema().qualified_field(0);
        let named = self
            .nullable
            .call(vec![Expr::from((qualifier, field))])
            .alias_qualified(qualifier.cloned(), field.name());
        LogicalPlanBuilder::from(Arc::clone(plan)).project(vec![named])?.build()
    }
}

/// Whether the plan has at least one row, whatever the tables hold.
fn has_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_a_row(&alias.input),
        LogicalPlan::Sort(sort) => sort.fetch != Some(0) && has_a_row(&sort.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        LogicalPlan::Values(values) => !values.values.is_empty(),
        _ => false,
    }
}
