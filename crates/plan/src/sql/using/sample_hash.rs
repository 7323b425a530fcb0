//! Samples that can be repeated, whose rows are chosen by the values of all their columns.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, OrderBy, Select, VisitMut,
    VisitorMut,
};

use super::columns::{Named, TableColumns, of_joins};
use crate::sql::samples::PLACE;

/// Gives the calls of a sample in the condition or in the order of a SELECT its columns.
pub(super) fn write(select: &mut Select, order: Option<&mut OrderBy>, columns: TableColumns<'_>) {
    let mut calls = Calls { columns: None, found: false };
    let mut order = order;
    visit(select, order.as_deref_mut(), &mut calls);
    if !calls.found {
        return;
    }
    let mut from = select.from.clone();
    let known = from.iter_mut().map(|from| of_joins(from, columns)).collect::<Option<Vec<_>>>();
    let known = known.map(|known| known.concat());
    visit(select, order, &mut Calls { columns: known.as_deref(), found: false });
}

fn visit(select: &mut Select, order: Option<&mut OrderBy>, calls: &mut Calls<'_>) {
    _ = VisitMut::visit(&mut select.selection, calls);
    if let Some(order) = order {
        _ = VisitMut::visit(order, calls);
    }
}

struct Calls<'a> {
    columns: Option<&'a [Named]>,
    found: bool,
}

impl VisitorMut for Calls<'_> {
    type Break = Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr
            && name.to_string() == PLACE
        {
            self.found = true;
            let argument =
                |column: &Named| FunctionArg::Unnamed(FunctionArgExpr::Expr(column.expr.clone()));
            list.args.truncate(1);
            list.args.extend(self.columns.iter().copied().flatten().map(argument));
        }
        ControlFlow::Continue(())
    }
}
