//! Removes projections that give exactly the columns of their input, such as the one of `select *`.
//!
//! DataFusion looks the columns of a projection up by name, one after another, in many of its
//! rules: with thousands of columns this is most of the time of planning. Plans with few columns
//! keep the forms that DataFusion's rules expect.

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};

/// The number of columns from which on projections that change nothing are removed.
pub(crate) const MANY_COLUMNS: usize = 256;

/// A plan without projections of `least` columns or more that change nothing.
pub(crate) fn without_same_columns(plan: LogicalPlan, least: usize) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Projection(projection)
            if projection.expr.len() >= least && is_the_same(&projection) =>
        {
            Ok(Transformed::yes(projection.input.as_ref().clone()))
        }
        node => Ok(Transformed::no(node)),
    })
    .data()
}

/// True if the columns are those of the input, in their order, with the same names and tables.
fn is_the_same(projection: &Projection) -> bool {
    let given = &projection.schema;
    let read = projection.input.schema();
    let mut columns = projection.expr.iter().zip(read.iter());
    projection.expr.len() == read.fields().len()
        && columns.all(|(expr, (table, field))| match expr {
            Expr::Column(column) => {
                column.relation.as_ref() == table && column.name == *field.name()
            }
            _ => false,
        })
        && given == read
}

#[cfg(test)]
mod tests {
    use datafusion::execution::context::SessionContext;

    use super::*;

    async fn projections(sql: &str, least: usize) -> usize {
        let session = SessionContext::new();
        let create = "create table t as values (1, 'a', 2.5)";
        session.sql(create).await.unwrap().collect().await.unwrap();
        let plan = session.state().create_logical_plan(sql).await.unwrap();
        let same = without_same_columns(plan.clone(), least).unwrap();
        assert_eq!(same.schema(), plan.schema(), "{sql}");
        same.display_indent().to_string().matches("Projection:").count()
    }

    #[tokio::test]
    async fn only_projections_that_change_nothing_are_removed() {
        for (sql, left) in [
            ("select * from t", 0),
            ("select * from t where column1 > 0 order by column2 limit 3", 0),
            ("select column1, column2, column3 from t", 0),
            ("select * from (select * from t) u", 0),
            ("select column2, column1, column3 from t", 1),
            ("select column1, column2 from t", 1),
            ("select column1 as a, column2, column3 from t", 1),
            ("select column1 + 1, column2, column3 from t", 1),
            ("select * from t where column1 in (select column1 from t)", 1),
        ] {
            assert_eq!(projections(sql, 1).await, left, "{sql}");
        }
    }

    #[tokio::test]
    async fn those_of_few_columns_stay() {
        assert_eq!(projections("select * from t", 3).await, 0);
        assert_eq!(projections("select * from t", 4).await, 1);
    }
}
