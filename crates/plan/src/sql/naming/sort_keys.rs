//! Names inside of expressions of ORDER BY, which are columns of the tables.
//!
//! `SELECT -k AS k FROM t ORDER BY k` is sorted by the item, and `ORDER BY k + 0` by the column of `t`, as
//! in PostgreSQL and DuckDB. The planner takes the item in both, and finds neither in `ORDER BY t.k`. Where
//! it does, such a key becomes an item itself, in which names are columns first, and a query around
//! it leaves that item out. A name that no table has stays the item's, as in DuckDB.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Distinct, Expr as Planned, LogicalPlan, Projection};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Visit, VisitMut,
    Visitor, VisitorMut,
};

use super::names::folded;
use crate::sql::pivot::{all_but, template, within};

/// Whether a plan is sorted by an item whose name is a column of the tables, in an expression.
pub(crate) fn sorts_by_item(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Sort(sort) = node
            && let Some(items) = items(&sort.input)
        {
            for key in sort.expr.iter().filter(|key| !matches!(key.expr, Planned::Column(_))) {
                found |= key.expr.exists(|part| Ok(is_unclear(part, items)))?;
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn items(sorted: &LogicalPlan) -> Option<&Projection> {
    match sorted {
        LogicalPlan::Projection(items) => Some(items),
        LogicalPlan::Distinct(Distinct::All(input)) => items(input),
        _ => None,
    }
}

fn is_unclear(part: &Planned, items: &Projection) -> bool {
    let is_item = |name: &Column| {
        let is = |item: &Planned| match item {
            Planned::Alias(alias) if alias.relation.is_none() && alias.name == name.name => {
                !matches!(alias.expr.as_ref(), Planned::Column(same) if same.name == name.name)
            }
            _ => false,
        };
        name.relation.is_none() && items.expr.iter().any(is)
    };
    match part {
        // The planner has computed it of a column of the tables, and does not find it again.
        Planned::AggregateFunction(_) => part.column_refs().into_iter().any(is_item),
        Planned::Column(name) => {
            let columns = items.input.schema().columns_with_unqualified_name(&name.name);
            !columns.is_empty() && is_item(name)
        }
        _ => false,
    }
}

/// Makes items of the keys that have names of items in expressions. False if there is none.
pub(crate) fn write(statement: &mut Statement) -> bool {
    let Statement::Statement(inner) = statement else { return false };
    let mut writer = KeyWriter { found: false };
    _ = VisitMut::visit(inner.as_mut(), &mut writer);
    writer.found
}

struct KeyWriter {
    found: bool,
}

impl VisitorMut for KeyWriter {
    type Break = Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Subquery(query) = expr {
            self.found |= hide_item(query);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        if let Some(written) = written(query) {
            *query = written;
            self.found = true;
        }
        ControlFlow::Continue(())
    }
}

/// Gives the only item of a subquery that is a value another name, which nothing but its ORDER BY sees:
/// then its name inside of a key is a column. A query around it would hide the columns of outer queries.
fn hide_item(query: &mut Query) -> bool {
    const HIDDEN: &str = "__item";
    let SetExpr::Select(select) = query.body.as_mut() else { return false };
    let names = names(select);
    let [SelectItem::ExprWithAlias { alias, expr }] = select.projection.as_mut_slice() else {
        return false;
    };
    // Only a name that is surely a column, too: the subquery uses it where items have no names.
    let is_column =
        has_name(expr, &names) || select.selection.iter().any(|of| has_name(of, &names));
    let Some(order) = &mut query.order_by else { return false };
    let OrderByKind::Expressions(keys) = &mut order.kind else { return false };
    // Groups and HAVING may use the name, too.
    let is_plain = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
        && select.having.is_none()
        && select.qualify.is_none();
    if !is_column || !is_plain || !keys.iter().any(|key| is_key(&key.expr, &names)) {
        return false;
    }
    let hidden = Ident::with_quote('"', HIDDEN);
    for key in keys.iter_mut().filter(|key| is_name(&key.expr, &names)) {
        key.expr = Expr::Identifier(hidden.clone());
    }
    *alias = hidden;
    true
}

/// Whether a key is the name of an item.
fn is_name(key: &Expr, names: &[String]) -> bool {
    match key {
        Expr::Nested(inner) => is_name(inner, names),
        Expr::Identifier(name) => names.contains(&folded(name)),
        _ => false,
    }
}

fn written(query: &Query) -> Option<Query> {
    let mut query = query.clone();
    while let SetExpr::Query(inner) = query.body.as_mut() {
        if !is_only_body(inner) {
            return None;
        }
        query.body = inner.body.clone();
    }
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let OrderByKind::Expressions(keys) = &mut query.order_by.as_mut()?.kind else { return None };
    // A further item would make other groups, and rows differ.
    let is_fixed = matches!(select.group_by, GroupByExpr::All(_)) || select.distinct.is_some();
    let names = names(select);
    if is_fixed || !keys.iter().any(|key| is_key(&key.expr, &names)) {
        return None;
    }
    // An order inside of FROM is none of the query around it.
    let mut hidden = Vec::new();
    for key in keys.iter_mut().filter(|key| !is_item(&key.expr, &names)) {
        let alias = Ident::with_quote('"', format!("__key_{}", hidden.len()));
        let expr = std::mem::replace(&mut key.expr, Expr::Identifier(alias.clone()));
        select.projection.push(SelectItem::ExprWithAlias { expr, alias: alias.clone() });
        hidden.push(alias);
    }
    let body = std::mem::replace(&mut query.body, template("select 1").ok()?.0.body);
    let (mut inner, _) = template("select 1").ok()?;
    inner.body = body;
    query.body = within(inner).ok()?.body;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![all_but(hidden)];
    }
    Some(query)
}

/// Whether a query is nothing but parentheses around its body.
fn is_only_body(query: &Query) -> bool {
    query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
}

fn names(select: &Select) -> Vec<String> {
    let alias = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    };
    select.projection.iter().filter_map(alias).collect()
}

/// Whether a key is the place or the name of an item.
fn is_item(key: &Expr, names: &[String]) -> bool {
    match key {
        Expr::Nested(inner) => is_item(inner, names),
        Expr::Identifier(name) => names.contains(&folded(name)),
        key => matches!(key, Expr::Value(_)),
    }
}

/// Whether a key is more than the name of an item, and has such a name.
fn is_key(key: &Expr, names: &[String]) -> bool {
    match key {
        Expr::Nested(inner) => is_key(inner, names),
        Expr::Identifier(_) => false,
        key => has_name(key, names),
    }
}

/// Whether one of these names is in an expression, also with a table.
fn has_name(expr: &Expr, names: &[String]) -> bool {
    struct NameSearch<'a>(&'a [String]);
    impl Visitor for NameSearch<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let name = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(path) => path.last(),
                _ => None,
            };
            match name.is_some_and(|name| self.0.contains(&folded(name))) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(expr, &mut NameSearch(names)).is_break()
}
