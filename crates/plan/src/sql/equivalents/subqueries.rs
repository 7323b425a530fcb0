//! Subqueries in expressions: `ARRAY(SELECT …)`, and `x = ANY (SELECT …)`, which is IN.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident,
    OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableAliasColumnDef, TableFactor,
    Value, Visit, Visitor, visit_expressions,
};

use crate::sql::pivot::template;
use crate::sql::semantics::call;

/// `x = ANY (SELECT …)` and `x <> ALL (SELECT …)` as IN and NOT IN, which may be values.
pub(super) fn membership(expr: &Expr) -> Option<Expr> {
    let (left, right, negated) = match expr {
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
        _ => return None,
    };
    let Expr::Subquery(subquery) = right.as_ref() else { return None };
    Some(Expr::InSubquery { expr: left.clone(), subquery: subquery.clone(), negated })
}

/// Why a SELECT is refused: only conditions of WHERE may compare a value with any row of a subquery.
pub(crate) fn refused(select: &Select) -> Option<(&'static str, &'static str)> {
    let mut search = ValueSearch { depth: 0 };
    let found = Visit::visit(&select.projection, &mut search);
    found.is_break().then_some((
        "ANY and ALL with a subquery are conditions of WHERE, and no values",
        "x > ANY (SELECT y …) is x > (SELECT min(y) …), and x > ALL (SELECT y …) is \
         x > (SELECT max(y) …), where y is never null",
    ))
}

/// Finds ANY and ALL of a subquery outside of subqueries, which have a SELECT of their own.
struct ValueSearch {
    depth: usize,
}

impl Visitor for ValueSearch {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. }
                if self.depth == 0
                    && matches!(right.as_ref(), Expr::Subquery(_))
                    && membership(expr).is_none() =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// `ARRAY(SELECT …)` as the list of all rows in their order, which is empty without rows.
pub(super) fn array(name: &str, function: &Function) -> Option<Expr> {
    let FunctionArguments::Subquery(query) = &function.args else { return None };
    if name != "array" {
        return None;
    }
    let all = in_place(query).or_else(|| around(query))?;
    Some(call("coalesce", vec![Expr::Subquery(Box::new(all)), call("make_array", Vec::new())]))
}

/// A query with the list in the place of its item. It may refer to the outer query.
fn in_place(query: &Query) -> Option<Query> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let item = item(select)?;
    let is_plain = !has_calls(item)
        && is_ungrouped(select)
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.top.is_none();
    if !is_plain {
        return None;
    }
    let key = |key: OrderByExpr| {
        let expr = if is_item(&key.expr, select) { item.clone() } else { key.expr };
        OrderByExpr { expr, ..key }
    };
    let keys = keys(query)?.into_iter().map(key).collect();
    let mut all = query.clone();
    all.order_by = None;
    let mut select = select.clone();
    select.projection = vec![SelectItem::UnnamedExpr(collected(item.clone(), keys)?)];
    *all.body = SetExpr::Select(select);
    Some(all)
}

/// A query around it, with the keys of its order as further columns.
fn around(query: &Query) -> Option<Query> {
    let mut rows = query.clone();
    let mut columns = vec![Ident::new("item")];
    let mut collected_by = Vec::new();
    for key in keys(query)? {
        let name = match query.body.as_ref() {
            SetExpr::Select(select) if !is_item(&key.expr, select) => {
                let SetExpr::Select(select) = rows.body.as_mut() else { return None };
                // The rows of DISTINCT would be others.
                if select.distinct.is_some() {
                    return None;
                }
                select.projection.push(SelectItem::UnnamedExpr(key.expr.clone()));
                columns.push(Ident::new(format!("key_{}", columns.len())));
                columns.last()?.clone()
            }
            SetExpr::Select(_) => columns.first()?.clone(),
            _ if is_first(&key.expr) => columns.first()?.clone(),
            _ => return None,
        };
        collected_by.push(OrderByExpr { expr: Expr::Identifier(name), ..key });
    }
    if query.limit_clause.is_none() && query.fetch.is_none() {
        rows.order_by = None;
    }
    let (mut all, mut select) = template("select 1 from (select 1) as items(item)").ok()?;
    let item = Expr::Identifier(columns.first()?.clone());
    select.projection = vec![SelectItem::UnnamedExpr(collected(item, collected_by)?)];
    let TableFactor::Derived { subquery, alias: Some(alias), .. } =
        &mut select.from.first_mut()?.relation
    else {
        return None;
    };
    **subquery = rows;
    let column = |name| TableAliasColumnDef { name, data_type: None };
    alias.columns = columns.into_iter().map(column).collect();
    *all.body = SetExpr::Select(Box::new(select));
    Some(all)
}

/// The only item of a SELECT.
fn item(select: &Select) -> Option<&Expr> {
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => Some(expr),
        _ => None,
    }
}

/// Whether a key of ORDER BY is the item: by its number, its name or its text.
fn is_item(key: &Expr, select: &Select) -> bool {
    let is_alias = match (key, select.projection.first()) {
        (Expr::Identifier(name), Some(SelectItem::ExprWithAlias { alias, .. })) => {
            name.value.eq_ignore_ascii_case(&alias.value)
        }
        _ => false,
    };
    is_alias || is_first(key) || item(select) == Some(key)
}

fn is_first(key: &Expr) -> bool {
    matches!(key, Expr::Value(value)
        if matches!(&value.value, Value::Number(digits, _) if digits == "1"))
}

fn is_ungrouped(select: &Select) -> bool {
    let has_groups = match &select.group_by {
        GroupByExpr::Expressions(groups, with) => !groups.is_empty() || !with.is_empty(),
        GroupByExpr::All(_) => true,
    };
    select.distinct.is_none() && !has_groups && select.having.is_none() && select.qualify.is_none()
}

/// The keys of a query's order. `None` for `ORDER BY ALL` of several columns.
fn keys(query: &Query) -> Option<Vec<OrderByExpr>> {
    match query.order_by.as_ref().map(|order| &order.kind) {
        None => Some(Vec::new()),
        Some(OrderByKind::Expressions(keys)) => Some(keys.clone()),
        Some(OrderByKind::All(_)) => None,
    }
}

fn has_calls(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |expr| match expr {
        Expr::Function(_) | Expr::Subquery(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// `array_agg(item ORDER BY …)`.
fn collected(item: Expr, keys: Vec<OrderByExpr>) -> Option<Expr> {
    let mut all = call("array_agg", vec![item]);
    if let (Expr::Function(function), false) = (&mut all, keys.is_empty()) {
        let FunctionArguments::List(list) = &mut function.args else { return None };
        list.clauses.push(FunctionArgumentClause::OrderBy(keys));
    }
    Some(all)
}
