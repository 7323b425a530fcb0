//! Names of columns in expressions: as the planner reads them, and replaced by other expressions.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, VisitMut, VisitorMut};

/// A name as the planner reads it.
pub(crate) fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Replaces names without a table by the expressions that `with` has for them, but not in queries
/// inside of this part of a statement, which have names of their own.
pub(crate) fn replace_names(part: &mut impl VisitMut, with: impl FnMut(&Ident) -> Option<Expr>) {
    _ = VisitMut::visit(part, &mut NameReplacement { with, inside: 0 });
}

struct NameReplacement<F> {
    with: F,
    /// The number of queries around the expression.
    inside: usize,
}

impl<F: FnMut(&Ident) -> Option<Expr>> VisitorMut for NameReplacement<F> {
    type Break = Infallible;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Infallible> {
        self.inside += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Infallible> {
        self.inside -= 1;
        ControlFlow::Continue(())
    }

    // After the parts of the expression, so that what takes the place of a name is not looked at.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if self.inside == 0
            && let Expr::Identifier(name) = expr
            && let Some(other) = (self.with)(name)
        {
            *expr = other;
        }
        ControlFlow::Continue(())
    }
}
