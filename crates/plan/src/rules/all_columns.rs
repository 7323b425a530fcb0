//! Plans `select * from t` without the list of its columns.
//!
//! DataFusion compares each item of a SELECT by its text with all items before it: 5,000 columns take
//! seconds. So the planner is given one item that stands for all columns, and its projection is
//! removed again. A statement with ORDER BY is planned as it is: the sort's columns are among the items.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, Select, SelectItem, SetExpr, Statement as SqlStatement, TableFactor,
    Value,
};

/// The name of the item that stands for all columns.
const ALL: &str = "__all_columns";

/// The plan of a statement.
pub(crate) async fn planned(statement: DfStatement, state: &SessionState) -> Result<LogicalPlan> {
    if let Some(short) = with_one_item(&statement)
        // An error is reported for the statement as it is written.
        && let Ok(plan) = state.statement_to_plan(short).await
        && let Some(plan) = with_all_columns(plan)
    {
        return Ok(plan);
    }
    state.statement_to_plan(statement).await
}

/// Replaces the items of a statement by a single one, if it selects all columns of one table as
/// they are. `None` for other statements.
fn with_one_item(statement: &DfStatement) -> Option<DfStatement> {
    let DfStatement::Statement(statement) = statement else { return None };
    let SqlStatement::Query(query) = statement.as_ref() else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    if query.order_by.is_some() || !selects_all(select) {
        return None;
    }
    let mut select = select.clone();
    let one = SqlExpr::Value(Value::Number("1".to_owned(), false).into());
    select.projection = vec![SelectItem::ExprWithAlias { expr: one, alias: Ident::new(ALL) }];
    let mut query = query.clone();
    query.body = Box::new(SetExpr::Select(select));
    Some(DfStatement::Statement(Box::new(SqlStatement::Query(query))))
}

/// True for `SELECT * FROM t`, with or without WHERE, and nothing else.
fn selects_all(select: &Select) -> bool {
    let [from] = select.from.as_slice() else { return false };
    let is_table = matches!(&from.relation, TableFactor::Table { args: None, .. });
    let mut bare = select.clone();
    bare.selection = None;
    is_table && from.joins.is_empty() && bare.to_string() == format!("SELECT * FROM {from}")
}

/// Removes the projection with the item. `None` if the plan has another form than expected.
fn with_all_columns(plan: LogicalPlan) -> Option<LogicalPlan> {
    match plan {
        LogicalPlan::Limit(mut limit) => {
            limit.input = Arc::new(with_all_columns(limit.input.as_ref().clone())?);
            Some(LogicalPlan::Limit(limit))
        }
        LogicalPlan::Projection(Projection { expr, input, .. }) => match expr.as_slice() {
            [Expr::Alias(one)] if one.name == ALL => Some(input.as_ref().clone()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::context::SessionContext;

    use super::*;
    use crate::rules::same_columns::without_same_columns;

    /// Checks that the plan is the same as that of the statement as it is written; true if it was made
    /// with one item.
    async fn is_short(sql: &str) -> bool {
        let session = SessionContext::new();
        let create = "create table t as values (1, 'a', 2.5)";
        session.sql(create).await.unwrap().collect().await.unwrap();
        let state = session.state();
        let statement = || state.sql_to_statement(sql, &state.config_options().sql_parser.dialect);
        let own = planned(statement().unwrap(), &state).await.unwrap();
        let plain = state.statement_to_plan(statement().unwrap()).await.unwrap();
        assert_eq!(own.schema(), plain.schema(), "{sql}");
        let short = !own.display_indent().to_string().contains("Projection: t.column1, t.column2");
        let text = |plan| without_same_columns(plan, 1).unwrap().display_indent().to_string();
        assert_eq!(text(own), text(plain), "{sql}");
        short
    }

    #[tokio::test]
    async fn all_columns_of_a_table_need_no_list() {
        for sql in [
            "select * from t",
            "select * from t limit 1 offset 2",
            "select * from t where column1 > 0 and column2 in (select column2 from t)",
            "with u as (select column1 from t) select * from u",
        ] {
            assert!(is_short(sql).await, "{sql}");
        }
    }

    #[tokio::test]
    async fn other_statements_are_planned_as_they_are() {
        for sql in [
            "select distinct * from t",
            "select *, column1 + 1 from t",
            "select * exclude (column3) from t",
            "select * from t order by 2",
            "select * from t order by column2 desc nulls last, column1 + 1 limit 3",
            "select * from t union all select * from t",
            "select * from t join t u on t.column1 = u.column1",
            "select column1, column2, column3 from t",
        ] {
            assert!(!is_short(sql).await, "{sql}");
        }
    }
}
