//! `COLUMNS(…)` of DuckDB: an expression for each of the columns of FROM that it names.
//!
//! `min(COLUMNS(*))` is the least value of each column, and has its name. In WHERE, all the conditions
//! must hold. `COLUMNS('x|y')` takes the columns in whose names the regular expression is found.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, Ident, ObjectNamePart, Select, SelectItem, Visit, VisitMut,
    Visitor, VisitorMut,
};

use super::columns::{Named, TableColumns, of_joins};
use super::columns_selection::wanted;
use super::unpivot_columns;

/// The name of the call.
const NAME: &str = "columns";

/// Whether an expression has such a call.
pub(crate) fn has_call(expr: &Expr) -> bool {
    call(expr).is_some()
}

/// The first such call in an expression.
fn call(expr: &Expr) -> Option<Function> {
    struct Find;
    impl Visitor for Find {
        type Break = Function;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Function> {
            match expr {
                Expr::Function(function) if is_call(function) => {
                    ControlFlow::Break(function.clone())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(expr, &mut Find).break_value()
}

fn is_call(function: &Function) -> bool {
    matches!(function.name.0.as_slice(), [ObjectNamePart::Identifier(name)]
        if name.value.eq_ignore_ascii_case(NAME))
}

/// Writes the items and the condition of a SELECT for each column. What cannot be written so is left.
pub(super) fn write(select: &mut Select, columns: TableColumns<'_>) {
    let of_item = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => has_call(expr),
        _ => false,
    };
    let in_condition = select.selection.as_ref().is_some_and(has_call);
    if !in_condition && !select.projection.iter().any(of_item) {
        return;
    }
    let mut from = select.from.clone();
    let known = from.iter_mut().map(|from| of_joins(from, columns)).collect::<Option<Vec<_>>>();
    let Some(known) = known.map(|known| known.concat()) else { return };
    let mut items = Vec::with_capacity(select.projection.len());
    let mut taken = HashSet::new();
    for item in &select.projection {
        let written = unpivot_columns::written(item, &known);
        match written.or_else(|| of_each(item, &known, &mut taken)) {
            Some(written) => items.extend(written),
            None => items.push(item.clone()),
        }
    }
    select.projection = items;
    if let Some(condition) = &select.selection
        && let Some(each) = written(condition, &known)
    {
        let each = each.into_iter().map(|(_, expr)| Expr::Nested(Box::new(expr)));
        select.selection = each.reduce(|one, other| Expr::BinaryOp {
            left: Box::new(one),
            op: BinaryOperator::And,
            right: Box::new(other),
        });
    }
}

/// A column that has the name of one before it gets a name with a number.
fn of_each(
    item: &SelectItem,
    known: &[Named],
    taken: &mut HashSet<String>,
) -> Option<Vec<SelectItem>> {
    let (expr, alias) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, None),
        SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
        _ => return None,
    };
    let each = written(expr, known)?.into_iter().map(|(name, expr)| {
        let name = alias.map_or(name, |alias| alias.value.clone());
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let mut choices = std::iter::once(name.clone()).chain(numbered);
        let free = choices.find(|name| taken.insert(name.clone())).unwrap_or(name);
        let alias = Ident::with_quote('"', free);
        SelectItem::ExprWithAlias { expr, alias }
    });
    Some(each.collect())
}

/// An expression for each column, with the name of the column. `None` if it has no call, or one that
/// is not known here.
fn written(expr: &Expr, known: &[Named]) -> Option<Vec<(String, Expr)>> {
    struct ColumnWriter<'a> {
        function: &'a Function,
        column: &'a Expr,
    }
    impl VisitorMut for ColumnWriter<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Function(function) = expr
                && is_call(function)
            {
                if function.args != self.function.args {
                    // Other columns than those of the first call.
                    return ControlFlow::Break(());
                }
                *expr = self.column.clone();
            }
            ControlFlow::Continue(())
        }
    }
    let function = call(expr)?;
    let each = wanted(&function, known)?.into_iter().map(|column| {
        let mut expr = expr.clone();
        let mut put = ColumnWriter { function: &function, column: &column.expr };
        let all = VisitMut::visit(&mut expr, &mut put).is_continue();
        all.then(|| (column.name.clone(), expr))
    });
    each.collect::<Option<Vec<_>>>().filter(|each| !each.is_empty())
}
