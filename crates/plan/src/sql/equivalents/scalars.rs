//! Subqueries that are values and have no FROM: `(SELECT -t.a)` is `-t.a`.
//!
//! The planner takes columns of the outer query only in conditions of subqueries.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Query, SelectItem, SetExpr, Visit, Visitor, visit_expressions_mut,
};

use crate::sql::pivot::template;

/// The expression of a subquery without FROM that has columns. With calls it is left as it is: an
/// aggregate in it would become one of the outer query.
pub(super) fn written(expr: &Expr) -> Option<Expr> {
    let Expr::Subquery(query) = expr else { return None };
    let value = value(query)?;
    let has_columns =
        finds(value, |expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)));
    let has_calls = finds(value, |expr| {
        matches!(expr, Expr::Function(_) | Expr::Subquery(_) | Expr::Exists { .. })
    });
    (has_columns && !has_calls).then(|| Expr::Nested(Box::new(value.clone())))
}

/// Keeps a subquery from being its expression: `= ANY (SELECT k)` is not `= ANY (k)`, which takes a
/// list, and `ORDER BY (SELECT k)` is not `ORDER BY k`, which prefers an item of that name.
pub(super) fn keep(query: &mut Query) {
    if value(query).is_some() {
        let inner = query.clone();
        *query.body = SetExpr::Query(Box::new(inner));
    }
}

/// Keeps the subqueries in ORDER BY that name an item of the SELECT.
pub(super) fn keep_in_order(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let alias = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.to_lowercase()),
        _ => None,
    };
    let aliases: Vec<String> = select.projection.iter().filter_map(alias).collect();
    let names_item = |expr: &Expr| matches!(expr, Expr::Identifier(name) if aliases.contains(&name.value.to_lowercase()));
    if let Some(order) = &mut query.order_by {
        _ = visit_expressions_mut(order, |expr| {
            if let Expr::Subquery(query) = expr
                && value(query).is_some_and(|value| finds(value, names_item))
            {
                keep(query);
            }
            ControlFlow::<()>::Continue(())
        });
    }
}

/// The only expression of a query that is nothing else.
fn value(query: &Query) -> Option<&Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    if !select.from.is_empty() {
        return None;
    }
    let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    // Compared as a whole: clauses are many, and each of them changes what the query is.
    let (mut plain, mut alone) = template("select 1").ok()?;
    alone.projection.clone_from(&select.projection);
    *plain.body = SetExpr::Select(Box::new(alone));
    (plain == *query).then_some(expr)
}

fn finds(expr: &Expr, is_wanted: impl Fn(&Expr) -> bool) -> bool {
    struct ScalarSearch<F>(F);
    impl<F: Fn(&Expr) -> bool> Visitor for ScalarSearch<F> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match (self.0)(expr) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(expr, &mut ScalarSearch(is_wanted)).is_break()
}
