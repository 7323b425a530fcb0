//! Expressions of one SELECT to which DataFusion gives the same name.
//!
//! DataFusion names an expression without its casts. So `k` and `k::varchar`, and `sum(k::int)` and
//! `sum(k::double)`, have the same name, and DataFusion refuses them in one SELECT, as well as a
//! column that is there twice. In such a statement casts are written so that their types are in the
//! names, and a column that is there again gets a name with a number, as in DuckDB. Names of
//! columns that `*` stands for are told apart where these columns are known ([`crate::sql::using`]).

use std::collections::HashSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, LimitClause, Query, Select, SelectItem, Visit, VisitMut, Visitor, VisitorMut,
};
use snowmelt_execute::checked::WRITTEN;

use super::names;
use crate::sql::meaning::{call, quoted};
use crate::sql::using::has_columns_call;

/// Whether a statement is refused because of the names of its expressions.
pub(crate) fn is_refusal(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Plan(text) => {
            text.contains("require unique expression names") || text.contains("Invalid qualifier")
        }
        // Of columns that are known, it is written out.
        DataFusionError::NotImplemented(text) => text.contains("with RENAME not supported"),
        DataFusionError::SchemaError(error, _) => matches!(
            error.as_ref(),
            datafusion::common::SchemaError::DuplicateUnqualifiedField { .. }
                | datafusion::common::SchemaError::DuplicateQualifiedField { .. }
                // It says so of a column with the name of one that has a table.
                | datafusion::common::SchemaError::AmbiguousReference { .. }
        ),
        DataFusionError::Collection(errors) => errors.iter().any(is_refusal),
        _ => false,
    }
}

/// Gives the items of each SELECT different names, those that they have in the SQL.
pub(crate) fn name_items(statement: &mut Statement) {
    if let Statement::Statement(statement) = statement {
        _ = VisitMut::visit(statement.as_mut(), &mut Naming);
    }
}

/// Gives expressions that differ in their casts different names in the plan.
pub(crate) fn tell_apart(statement: &mut Statement) {
    if let Statement::Statement(statement) = statement {
        _ = VisitMut::visit(statement.as_mut(), &mut Apart { limits: Vec::new() });
    }
}

struct Naming;

impl VisitorMut for Naming {
    type Break = Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        name_all(&mut select.projection);
        ControlFlow::Continue(())
    }
}

struct Apart {
    /// The clauses that limit the queries around this place. Only constants can be there.
    limits: Vec<Option<LimitClause>>,
}

impl VisitorMut for Apart {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        self.limits.push(query.limit_clause.take());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        query.limit_clause = self.limits.pop().flatten();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Cast { data_type, .. } = &*expr
            && has_column(expr)
        {
            let text = quoted(&data_type.to_string());
            *expr = call(WRITTEN, vec![expr.clone(), text]);
        }
        ControlFlow::Continue(())
    }
}

/// Names expressions by their text, and items that are written as one before them with a number: `k_1`
/// for the second `k`.
fn name_all(items: &mut [SelectItem]) {
    let mut before = HashSet::new();
    let unclear: Vec<bool> = items
        .iter()
        .map(|item| match item {
            // The columns that it stands for have the names.
            SelectItem::UnnamedExpr(expr) if has_columns_call(expr) => false,
            SelectItem::UnnamedExpr(expr) => !before.insert(expr.to_string()) || !is_column(expr),
            _ => false,
        })
        .collect();
    let clear = items.iter().zip(&unclear).filter(|(_, unclear)| !**unclear);
    let mut taken: HashSet<String> = clear.filter_map(|(item, _)| name(item)).collect();
    for (item, _) in items.iter_mut().zip(&unclear).filter(|(_, unclear)| **unclear) {
        let SelectItem::UnnamedExpr(expr) = &*item else { continue };
        let short = names::text(item).unwrap_or_default();
        let long = expr.to_string();
        let numbered = (1..).map(|number| format!("{short}_{number}"));
        let mut choices = [short.clone(), long].into_iter().chain(numbered);
        let Some(free) = choices.find(|name| !taken.contains(name)) else { continue };
        taken.insert(free.clone());
        *item =
            SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', free) };
    }
}

fn name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        item => names::text(item),
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

fn has_column(expr: &Expr) -> bool {
    struct ColumnVisitor;
    impl Visitor for ColumnVisitor {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match is_column(expr) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(expr, &mut ColumnVisitor).is_break()
}
