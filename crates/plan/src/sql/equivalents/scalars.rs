//! Subqueries that are values and have no FROM: `(SELECT -t.a)` is `-t.a`.
//!
//! The planner takes columns of the outer query only in conditions of subqueries.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, Visit, Visitor,
};

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

/// The only expression of a query that is nothing else.
fn value(query: &Query) -> Option<&Expr> {
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }]
            if is_plain && is_alone(select) =>
        {
            Some(expr)
        }
        _ => None,
    }
}

fn is_alone(select: &Select) -> bool {
    let groups = match &select.group_by {
        GroupByExpr::Expressions(groups, _) => groups.is_empty(),
        GroupByExpr::All(_) => false,
    };
    let conditions = [&select.selection, &select.having, &select.qualify];
    groups && select.from.is_empty() && conditions.iter().all(|condition| condition.is_none())
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
