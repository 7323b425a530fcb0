//! Functions and clauses of DuckDB and PostgreSQL that the planner lacks, written with those that it
//! has.
//!
//! A function that exists under its name, such as one of the user, is never replaced. What cannot be
//! written so with the same answer is left as it is, and is then refused as an unknown function.

mod aggregates;
mod clauses;
mod exclusions;
mod functions;
mod groups;
mod hints;
mod intervals;
mod lists;
mod rows;
mod scalars;
mod subqueries;
mod templates;
mod times;
mod types;
mod uuids;

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, Query, Select,
    TableFactor, VisitMut, VisitorMut,
};

use super::semantics::text;
pub(crate) use clauses::refused as refused_clause;
pub(crate) use exclusions::refused as refused_frame;
pub(crate) use functions::known;
pub(crate) use groups::refused as refused_groups;
pub(crate) use hints::{of_unknown_function, of_wrong_text};
pub(crate) use subqueries::refused as refused_values;

/// Whether there is a function of this name.
pub(crate) type Exists<'a> = &'a dyn Fn(&str) -> bool;

/// Writes a statement with functions and clauses that the planner has.
pub(crate) fn write(statement: &mut Statement, exists: Exists<'_>) {
    if let Statement::Statement(statement) = statement {
        _ = VisitMut::visit(statement.as_mut(), &mut EquivalentWriter { exists });
    }
}

struct EquivalentWriter<'a> {
    exists: Exists<'a>,
}

impl VisitorMut for EquivalentWriter<'_> {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        clauses::write(query);
        scalars::keep_in_order(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        rows::write_conditions(select);
        groups::write(select);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Infallible> {
        clauses::write_lists(table);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = expr
            && let Expr::Subquery(query) = right.as_mut()
        {
            scalars::keep(query);
        }
        if let Some(written) = subqueries::membership(expr).or_else(|| functions::method(expr)) {
            *expr = written;
        }
        ControlFlow::Continue(())
    }

    /// Replaces an expression, after its arguments.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Function(function) = expr
            && let Some(written) = exclusions::written(function)
        {
            *expr = written;
        }
        clauses::write_parts(expr);
        uuids::write_comparison(expr);
        if let Some(written) = rows::written(expr).or_else(|| scalars::written(expr)) {
            *expr = written;
        }
        if let Expr::Function(function) = expr
            && let Some(name) = plain_name(function)
            && let Some(list) = lists::quantiles(&name, function)
                .or_else(|| lists::extremes(&name, function))
                .or_else(|| subqueries::array(&name, function))
                .or_else(|| functions::struct_insert(&name, function))
        {
            *expr = list;
        }
        if let Expr::Function(function) = expr
            && let Some(name) = plain_name(function)
        {
            match (self.exists)(&name) && !lacks_argument(&name, function) {
                true => templates::translate(&name, function),
                false => {
                    if let Some(written) = of_call(&name, function) {
                        *expr = written;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// The name of a function in small letters.
fn plain_name(function: &Function) -> Option<String> {
    match function.name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name.value.to_lowercase()),
        _ => None,
    }
}

/// Calls with one argument of functions that take more: `age(x)` is `age(current_date, x)`,
/// `list_first(l)` needs no condition, `list_sort(l)` has nulls last, as ORDER BY, and `encode(x)` is
/// that of UTF-8.
fn lacks_argument(name: &str, function: &Function) -> bool {
    const WITH_MORE: [&str; 7] =
        ["age", "array_first", "array_sort", "decode", "encode", "list_first", "list_sort"];
    WITH_MORE.contains(&name) && arguments(function).is_some_and(|args| args.len() == 1)
}

fn of_call(name: &str, function: &Function) -> Option<Expr> {
    functions::renamed(name, function)
        .or_else(|| aggregates::written(name, function))
        .or_else(|| lists::written(name, function))
        .or_else(|| functions::written(name, &arguments(function)?))
        .or_else(|| times::written(name, &arguments(function)?))
}

/// The arguments of a plain call: without DISTINCT, FILTER, OVER or ORDER BY.
fn arguments(function: &Function) -> Option<Vec<Expr>> {
    let is_plain = function.filter.is_none()
        && function.over.is_none()
        && function.null_treatment.is_none()
        && function.within_group.is_empty();
    match &function.args {
        FunctionArguments::List(list)
            if is_plain && list.clauses.is_empty() && list.duplicate_treatment.is_none() =>
        {
            by_place(&list.args)
        }
        _ => None,
    }
}

fn by_place(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let value = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    args.iter().map(value).collect()
}
