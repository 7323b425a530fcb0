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
    Distinct, Expr, Ident, LimitClause, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, TableFactor, Value, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};
use snowmelt_execute::sql_semantics::WRITTEN;

use super::names;
use crate::sql::semantics::{call, quoted};
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

/// Names the items of subqueries in FROM and of tables in WITH as they are written. The planner would
/// name them by its own text, which has other functions and types, such as `Int64(1)`. Names also the
/// items whose places are in ORDER BY, because the planner does not find them beside aggregates.
pub(crate) fn name_columns(statement: &mut Statement) {
    if let Statement::Statement(statement) = statement {
        _ = VisitMut::visit(statement.as_mut(), &mut Columns);
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

struct Columns;

impl VisitorMut for Columns {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        let tables = query.with.iter_mut().flat_map(|with| &mut with.cte_tables);
        tables.for_each(|table| name_body(&mut table.query));
        name_places(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Infallible> {
        if let TableFactor::Derived { subquery, .. } = factor {
            name_body(subquery);
        }
        ControlFlow::Continue(())
    }
}

fn name_body(query: &mut Query) {
    let is_sorted = query.order_by.is_some();
    let mut open = vec![query.body.as_mut()];
    while let Some(body) = open.pop() {
        match body {
            // By another name, a key of ORDER BY is none of its items.
            SetExpr::Select(select) if is_sorted && select.distinct.is_some() => (),
            SetExpr::Select(select) => {
                let unclear = |item: &SelectItem| match item {
                    SelectItem::UnnamedExpr(expr) => {
                        !is_column(expr)
                            && !has_columns_call(expr)
                            && expr.to_string() != "count(*)"
                    }
                    _ => false,
                };
                let unclear: Vec<bool> = select.projection.iter().map(unclear).collect();
                name(&mut select.projection, &unclear);
            }
            SetExpr::Query(query) => name_body(query),
            SetExpr::SetOperation { left, right, .. } => {
                open.extend([left.as_mut(), right.as_mut()]);
            }
            _ => (),
        }
    }
}

/// Names the items that are sorted by their places.
fn name_places(query: &mut Query) {
    let Query { body, order_by: Some(order), .. } = query else { return };
    let SetExpr::Select(select) = body.as_mut() else { return };
    if matches!(select.distinct, Some(Distinct::Distinct))
        && let OrderByKind::Expressions(keys) = &mut order.kind
    {
        keys.iter_mut().for_each(|key| by_place(&mut key.expr, &select.projection));
    }
    let place = |key: &OrderByExpr| match &key.expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
            digits.to_string().parse().ok()
        }
        _ => None,
    };
    let places: Vec<usize> = match &order.kind {
        OrderByKind::All(_) => (1..=select.projection.len()).collect(),
        OrderByKind::Expressions(keys) => keys.iter().filter_map(place).collect(),
    };
    let is_known = |item: &SelectItem| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    let known = select.projection.iter().take_while(|item| is_known(item)).count();
    let unclear = |place: usize, item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => {
            place <= known && places.contains(&place) && !is_converted(expr)
        }
        _ => false,
    };
    let items = (1..).zip(&select.projection);
    let unclear: Vec<bool> = items.map(|(place, item)| unclear(place, item)).collect();
    name(&mut select.projection, &unclear);
}

/// Writes a key that is an item as its place: of rows that differ, the planner finds it so alone.
fn by_place(key: &mut Expr, items: &[SelectItem]) {
    let is_item = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr == key,
        _ => false,
    };
    let is_one = |item: &SelectItem| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    if !is_column(key)
        && !matches!(key, Expr::Value(_))
        && let Some(index) = items.iter().take_while(|item| is_one(item)).position(is_item)
    {
        *key = Expr::Value(Value::Number((index + 1).to_string(), false).into());
    }
}

/// A column, which the planner finds by its place, converted or not.
fn is_converted(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => is_converted(inner),
        expr => is_column(expr) || has_columns_call(expr),
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
    name(items, &unclear);
}

/// Names the unclear ones of the items.
fn name(items: &mut [SelectItem], unclear: &[bool]) {
    let clear = items.iter().zip(unclear).filter(|(_, unclear)| !**unclear);
    let mut taken: HashSet<String> = clear.filter_map(|(item, _)| name_of(item)).collect();
    for (item, _) in items.iter_mut().zip(unclear).filter(|(_, unclear)| **unclear) {
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

fn name_of(item: &SelectItem) -> Option<String> {
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
