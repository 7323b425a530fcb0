//! `*` beside a column that has the name of one of its columns: `SELECT *, k + 1 AS k FROM t`.
//!
//! DataFusion refuses two columns of one name in a SELECT. Here `*` is written as the columns that it
//! stands for, and a column whose name is taken gets it with a number: `k_1`, as in subqueries of
//! DuckDB. And `x.*` of a struct is written as the fields that it has.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByKind, Select, SelectItem, SelectItemQualifiedWildcardKind,
    TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use super::columns::{Named, TableColumns, of_joins};
use super::names::folded;
use super::select::all;
use crate::sql::semantics::{call, quoted};

/// Gives the items of a SELECT different names. It is left as it is where the columns are not known, or
/// where ORDER BY has a name that stands for two of them.
pub(super) fn name_apart(select: &mut Select, order: Option<&OrderBy>, columns: TableColumns<'_>) {
    let mut from = select.from.clone();
    let known = from.iter_mut().map(|from| of_joins(from, columns)).collect::<Option<Vec<_>>>();
    let Some(known) = known.map(|known| known.concat()) else { return };
    let Some(mut items) = written_out(&select.projection, &known, &select.from, columns) else {
        return;
    };
    if !is_ambiguous(order, &items, &known) {
        number(&mut items);
        select.projection = items;
    }
}

/// The items with the columns that wildcards stand for.
fn written_out(
    items: &[SelectItem],
    known: &[Named],
    from: &[TableWithJoins],
    columns: TableColumns<'_>,
) -> Option<Vec<SelectItem>> {
    let mut written = Vec::with_capacity(items.len());
    for item in items {
        match item {
            SelectItem::Wildcard(options) => written.extend(all(options, known)?),
            SelectItem::QualifiedWildcard(of, options) => {
                written.extend(of_one(of, options, known, from, columns)?);
            }
            item => written.push(item.clone()),
        }
    }
    Some(written)
}

/// The columns of `t.*`, or the fields of `x.*`.
fn of_one(
    of: &SelectItemQualifiedWildcardKind,
    options: &WildcardAdditionalOptions,
    known: &[Named],
    from: &[TableWithJoins],
    columns: TableColumns<'_>,
) -> Option<Vec<SelectItem>> {
    let SelectItemQualifiedWildcardKind::ObjectName(name) = of else { return None };
    let path: Vec<String> =
        name.0.iter().map(|part| part.as_ident().map(folded)).collect::<Option<_>>()?;
    let mut tables = from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
    });
    if let [table] = path.as_slice()
        && let Some(found) = tables.find(|factor| name_of(factor).as_ref() == Some(table))
    {
        return all(options, &columns(found)?);
    }
    let (column, table) = path.split_last()?;
    let is_meant = |one: &&Named| one.name == *column && (table.is_empty() || one.is_of(table));
    let mut meant = known.iter().filter(is_meant);
    let of = meant.next().filter(|_| meant.next().is_none())?;
    let field = |name: &String| Named {
        name: name.clone(),
        expr: call("get_field", vec![of.expr.clone(), quoted(name)]),
        is_key: false,
        fields: Vec::new(),
    };
    let fields: Vec<Named> = of.fields.iter().map(field).collect();
    (!fields.is_empty()).then(|| all(options, &fields)).flatten()
}

/// The name by which a table in FROM is known.
fn name_of(table: &TableFactor) -> Option<String> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(folded(&alias.name)),
        TableFactor::Table { name, alias: None, .. } => {
            name.0.last().and_then(|part| part.as_ident()).map(folded)
        }
        _ => None,
    }
}

fn name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(folded(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => path.last().map(folded),
        _ => None,
    }
}

fn value(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) => Some(expr),
        _ => None,
    }
}

/// Whether a name in ORDER BY stands for items with different values.
fn is_ambiguous(order: Option<&OrderBy>, items: &[SelectItem], known: &[Named]) -> bool {
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order else { return false };
    keys.iter().any(|key| {
        let Expr::Identifier(wanted) = &key.expr else { return false };
        let wanted = folded(wanted);
        let mut values = items
            .iter()
            .filter(|item| name(item).as_ref() == Some(&wanted))
            .filter_map(|item| value(item).map(|value| full(value, known)));
        let first = values.next();
        values.any(|value| Some(value) != first)
    })
}

/// A column with its table.
fn full(value: &Expr, known: &[Named]) -> String {
    if let Expr::Identifier(name) = value {
        let name = folded(name);
        let mut named = known.iter().filter(|column| column.name == name);
        if let Some(only) = named.next()
            && named.next().is_none()
        {
            return only.expr.to_string();
        }
    }
    value.to_string()
}

/// Names the items whose name an item before them has with a number.
fn number(items: &mut [SelectItem]) {
    let all: HashSet<String> = items.iter().filter_map(name).collect();
    let mut taken = HashSet::new();
    for item in items {
        let Some(name) = name(item) else { continue };
        if taken.insert(name.clone()) {
            continue;
        }
        let mut numbered = (1..).map(|number| format!("{name}_{number}"));
        let free = numbered.find(|name| !all.contains(name) && !taken.contains(name));
        if let (Some(expr), Some(free)) = (value(item).cloned(), free) {
            taken.insert(free.clone());
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', free) };
        }
    }
}
