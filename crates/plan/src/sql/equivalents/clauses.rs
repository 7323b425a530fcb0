//! Clauses: `ORDER BY ALL`, `FETCH FIRST`, slices without a bound, types.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, Expr, Fetch, LimitClause, OrderByExpr,
    OrderByKind, Query, Select, SelectItem, SetExpr, Subscript, TableFactor, UnaryOperator, Value,
    Visit, VisitMut, Visitor, VisitorMut, visit_expressions,
};

use super::functions::binary;
use super::{intervals, text, times, types, uuids};
use crate::sql::naming::names;
use crate::sql::semantics::{call, quoted};

/// Returns the reason why a query is refused whose clauses have no equivalent form, with a hint.
pub(crate) fn refused(query: &Query) -> Option<(&'static str, &'static str)> {
    if query.limit_clause.as_ref().is_some_and(has_subquery) {
        let hint = "run the subquery first, and pass its number as a parameter: LIMIT ?";
        return Some(("LIMIT and OFFSET take numbers, and no subquery", hint));
    }
    if query.limit_clause.as_ref().is_some_and(has_column) {
        let hint = "number the rows in a subquery: row_number() OVER (PARTITION BY … ORDER BY …) AS n, \
                    and compare n with the column";
        return Some(("LIMIT and OFFSET take numbers, and no columns", hint));
    }
    match &query.fetch {
        Some(Fetch { with_ties: true, .. }) => Some((
            "FETCH FIRST … WITH TIES is not supported",
            "use QUALIFY rank() OVER (ORDER BY …) <= n",
        )),
        Some(Fetch { percent: true, .. }) => Some((
            "FETCH FIRST … PERCENT is not supported",
            "use QUALIFY percent_rank() OVER (ORDER BY …) < n / 100.0",
        )),
        Some(_) if has_limit(query) => {
            Some(("the query has both LIMIT and FETCH FIRST", "write one of them"))
        }
        _ => None,
    }
}

fn has_subquery(clause: &LimitClause) -> bool {
    struct Find;
    impl Visitor for Find {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    Visit::visit(clause, &mut Find).is_break()
}

fn has_column(clause: &LimitClause) -> bool {
    let is_column = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    let found = visit_expressions(clause, |expr| match is_column(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn has_limit(query: &Query) -> bool {
    match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, limit_by, .. }) => {
            limit.is_some() || !limit_by.is_empty()
        }
        Some(LimitClause::OffsetCommaLimit { .. }) => true,
        None => false,
    }
}

/// Writes the clauses of a query.
pub(super) fn write(query: &mut Query) {
    if refused(query).is_none()
        && let Some(fetch) = query.fetch.take()
    {
        limit(query, fetch.quantity.unwrap_or_else(|| number("1")));
    }
    let Some(order) = &mut query.order_by else { return };
    if let OrderByKind::All(options) = &order.kind
        && let Some(items) = items(&query.body)
    {
        let key = |place: usize| OrderByExpr {
            expr: number(&place.to_string()),
            options: *options,
            with_fill: None,
        };
        order.kind = OrderByKind::Expressions((1..=items).map(key).collect());
    }
}

fn limit(query: &mut Query, rows: Expr) {
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, .. }) => *limit = Some(rows),
        _ => {
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: Some(rows),
                offset: None,
                limit_by: Vec::new(),
            });
        }
    }
}

/// The number of columns of a query, if its text shows it.
fn items(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => of_select(select),
        SetExpr::Query(query) => items(&query.body),
        SetExpr::SetOperation { left, .. } => items(left),
        SetExpr::Values(values) => values.rows.first().map(|row| row.len()),
        _ => None,
    }
}

fn of_select(select: &Select) -> Option<usize> {
    let is_one = |item: &SelectItem| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    select.projection.iter().all(is_one).then_some(select.projection.len())
}

/// Writes the parts of an expression that are not functions.
pub(super) fn write_parts(expr: &mut Expr) {
    match expr {
        Expr::CompoundFieldAccess { root, access_chain } => {
            // Of `t.x['a']` the parser makes the root `t` and a member `x`, which is a column.
            let is_name = matches!(root.as_ref(), Expr::Identifier(_));
            let is_dot = |access: &&AccessExpr| matches!(access, AccessExpr::Dot(_));
            let names = access_chain.iter().take_while(is_dot).count();
            let columns = if is_name { names } else { 0 };
            access_chain.iter_mut().skip(columns).for_each(write_access);
        }
        Expr::BinaryOp {
            left,
            op: op @ (BinaryOperator::Arrow | BinaryOperator::LongArrow),
            right,
        } => {
            let function = match op {
                BinaryOperator::Arrow => "json_extract",
                _ => "json_extract_string",
            };
            *expr = call(function, vec![left.as_ref().clone(), right.as_ref().clone()]);
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
            *expr = call("starts_with", vec![left.as_ref().clone(), right.as_ref().clone()]);
        }
        Expr::Extract { field, expr: of, .. } => {
            if let Some(written) = times::years_in(&field.to_string().to_lowercase(), of) {
                *expr = written;
            }
        }
        Expr::Interval(interval) => {
            if let Some(written) = intervals::written(interval) {
                *expr = written;
            }
        }
        Expr::UnaryOp { op: UnaryOperator::PGPostfixFactorial, expr: of } => {
            *expr = call("factorial", vec![of.as_ref().clone()]);
        }
        Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: of } => {
            let all = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(number("1")) };
            *expr = binary(of.as_ref().clone(), BinaryOperator::PGBitwiseXor, all);
        }
        Expr::Cast {
            data_type: DataType::JSON | DataType::JSONB,
            expr: of,
            kind: CastKind::Cast | CastKind::DoubleColon,
            ..
        } => {
            *expr = call("json", vec![of.as_ref().clone()]);
        }
        Expr::TypedString(typed) if matches!(typed.data_type, DataType::JSON | DataType::JSONB) => {
            *expr = call("json", vec![Expr::Value(typed.value.clone())]);
        }
        Expr::TypedString(typed) => {
            let text = Expr::Value(typed.value.clone());
            if let Some(written) = uuids::cast_of(&text, &typed.data_type, &CastKind::Cast) {
                *expr = written;
            }
        }
        Expr::Cast { data_type, expr: of, kind, .. } => {
            if let Some(written) = uuids::cast_of(of, data_type, kind) {
                *expr = written;
                return;
            }
            if matches!(data_type, DataType::Interval { .. })
                && let Some(written) = text(of).and_then(intervals::in_words)
            {
                **of = quoted(&written);
            }
            types::write(data_type);
        }
        _ => (),
    }
}

/// `unnest([a, b])` in FROM with calls for its lists: the planner finds no columns of other tables in
/// a list that is written with brackets.
pub(super) fn write_lists(table: &mut TableFactor) {
    struct Lists;
    impl VisitorMut for Lists {
        type Break = Infallible;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
            if let Expr::Array(list) = expr {
                *expr = call("make_array", std::mem::take(&mut list.elem));
            }
            ControlFlow::Continue(())
        }
    }
    if let TableFactor::UNNEST { array_exprs, .. } = table {
        _ = VisitMut::visit(array_exprs, &mut Lists);
    }
}

/// A member by its name as a text, and a slice with both its bounds: the first element, and the last.
fn write_access(access: &mut AccessExpr) {
    if let AccessExpr::Dot(member) = access {
        if let Expr::Identifier(name) = member {
            *member = quoted(&names::folded(name));
        }
        return;
    }
    let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) = access else {
        return;
    };
    lower_bound.get_or_insert_with(|| number("1"));
    upper_bound.get_or_insert_with(|| Expr::UnaryOp {
        op: UnaryOperator::Minus,
        expr: Box::new(number("1")),
    });
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}
