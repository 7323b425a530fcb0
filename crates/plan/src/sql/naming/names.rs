//! Names of columns: matched with the columns of files ignoring case, and written in the answer as
//! in the SQL.

use std::collections::HashSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::common::{Column, SchemaError};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, Query, Select, SelectItem, SetExpr, Statement as SqlStatement,
    TableFactor, VisitMut, VisitorMut,
};

pub(crate) use crate::sql::using::folded;
use crate::sql::using::has_columns_call;

/// Quotes a column that the SQL writes in another case, if only one column matches: the planner
/// converts unquoted names to lower case. False if this cannot fix the error.
pub(crate) fn correct_case(statement: &mut Statement, error: &DataFusionError) -> bool {
    let Some(name) = matching_column(error) else { return false };
    let Statement::Statement(statement) = statement else { return false };
    let mut quoting = Quoting { name, changed: false };
    _ = VisitMut::visit(statement.as_mut(), &mut quoting);
    quoting.changed
}

/// The only column whose name differs from the missing one just in case.
fn matching_column(error: &DataFusionError) -> Option<String> {
    let (field, valid) = match error.find_root() {
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => (field, valid_fields),
            _ => return None,
        },
        DataFusionError::Collection(errors) => return errors.iter().find_map(matching_column),
        _ => return None,
    };
    let wanted = field.name.to_lowercase();
    let mut names = valid.iter().map(|column| &column.name);
    let first = names.find(|name| name.to_lowercase() == wanted)?;
    names.all(|name| name == first || name.to_lowercase() != wanted).then(|| first.clone())
}

/// Quotes every unquoted use of a name in its right case, also aliases, so that they stay equal.
struct Quoting {
    name: String,
    changed: bool,
}

impl Quoting {
    fn quote(&mut self, ident: &mut Ident) {
        if ident.quote_style.is_none() && ident.value.to_lowercase() == self.name.to_lowercase() {
            ident.value.clone_from(&self.name);
            ident.quote_style = Some('"');
            self.changed = true;
        }
    }
}

impl VisitorMut for Quoting {
    type Break = Infallible;

    fn pre_visit_expr(&mut self, expr: &mut SqlExpr) -> ControlFlow<Infallible> {
        match expr {
            SqlExpr::Identifier(ident) => self.quote(ident),
            SqlExpr::CompoundIdentifier(idents) => idents.iter_mut().for_each(|i| self.quote(i)),
            _ => (),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        for item in &mut select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.quote(alias);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        let tables = query.with.iter_mut().flat_map(|with| &mut with.cte_tables);
        for column in tables.flat_map(|table| &mut table.alias.columns) {
            self.quote(&mut column.name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Infallible> {
        if let TableFactor::Derived { alias: Some(alias), .. } = factor {
            alias.columns.iter_mut().for_each(|column| self.quote(&mut column.name));
        }
        ControlFlow::Continue(())
    }
}

/// Names the unnamed columns of the answer by their text in the SQL.
pub(crate) fn with_written_names(plan: LogicalPlan, statement: &Statement) -> Result<LogicalPlan> {
    let Some(texts) = item_texts(statement, plan.schema().fields().len()) else { return Ok(plan) };
    let mut taken: HashSet<String> =
        plan.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut renamed = false;
    let columns = plan.schema().iter().zip(texts).map(|((table, field), name)| {
        let column = Expr::Column(Column::new(table.cloned(), field.name()));
        match name {
            Some(name) if taken.insert(name.clone()) => {
                renamed = true;
                column.alias(name)
            }
            _ => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    if !renamed {
        return Ok(plan);
    }
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// The text of each column of the answer, if it is an expression without a name.
fn item_texts(statement: &Statement, columns: usize) -> Option<Vec<Option<String>>> {
    let Statement::Statement(statement) = statement else { return None };
    let SqlStatement::Query(query) = statement.as_ref() else { return None };
    let items = &select(&query.body)?.projection;
    let plain = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            !has_columns_call(expr)
        }
        _ => false,
    };
    // The columns of a wildcard are unknown here; those before and after it are known.
    let before = items.iter().take_while(|item| plain(item)).count();
    let behind = items[before..].iter().rev().take_while(|item| plain(item)).count();
    let whole = before == items.len();
    if columns < before + behind || (whole && columns != before) {
        return None;
    }
    let mut texts: Vec<Option<String>> = items[..before].iter().map(text).collect();
    texts.resize(columns - behind, None);
    texts.extend(items[items.len() - behind..].iter().map(text));
    Some(texts)
}

/// The SELECT that names the columns.
fn select(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(inner) => Some(inner),
        SetExpr::Query(inner) => select(&inner.body),
        SetExpr::SetOperation { left, .. } => select(left),
        _ => None,
    }
}

/// The name of an item that the SQL does not name: its text, or that of its column.
pub(crate) fn text(item: &SelectItem) -> Option<String> {
    let SelectItem::UnnamedExpr(expr) = item else { return None };
    if has_columns_call(expr) {
        return None;
    }
    let mut inner = expr;
    while let SqlExpr::Nested(within) | SqlExpr::Cast { expr: within, .. } = inner {
        inner = within;
    }
    match inner {
        // A column keeps its name, converted or not.
        SqlExpr::Identifier(ident) => Some(folded(ident)),
        SqlExpr::CompoundIdentifier(idents) => idents.last().map(folded),
        _ => Some(expr.to_string()),
    }
}
