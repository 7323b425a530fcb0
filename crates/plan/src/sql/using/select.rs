//! The names of keys, and `*`, in a SELECT whose FROM has joins with USING or NATURAL.

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderBy, OrderByKind,
    RenameSelectItem, Select, SelectItem, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use super::columns::{Named, TableColumns, constraint, of_joins};
use super::names::{folded, replace_names};

/// Writes the joins of a SELECT with ON. False if one is left whose key has another value than that
/// of one side.
pub(super) fn merge(
    select: &mut Select,
    order: Option<&mut OrderBy>,
    columns: TableColumns<'_>,
) -> bool {
    let mut merges = false;
    let mut keeps_rows = false;
    for from in &mut select.from {
        look(from, &mut merges, &mut keeps_rows);
    }
    if !merges {
        return true;
    }
    let mut from = select.from.clone();
    let known: Option<Vec<Vec<Named>>> =
        from.iter_mut().map(|from| of_joins(from, columns)).collect();
    let Some(known) = known else { return !keeps_rows };
    let known = known.concat();
    let Some(projection) = written_out(&select.projection, &known) else { return !keeps_rows };
    (select.from, select.projection) = (from, projection);
    keep_names(&mut select.projection, &known);
    replace_names(select, |name| key(&known, name).map(|key| key.expr.clone()));
    if let Some(order) = order {
        sort_by_keys(order, &select.projection, &known);
    }
    true
}

/// Whether joins have a merged key, and whether one may differ from that of a side.
fn look(from: &mut TableWithJoins, merges: &mut bool, keeps_rows: &mut bool) {
    let factors = from.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut from.relation).chain(factors) {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            look(table_with_joins, merges, keeps_rows);
        }
    }
    for join in &mut from.joins {
        let inner = matches!(join.join_operator, JoinOperator::Join(_) | JoinOperator::Inner(_));
        if let Some(JoinConstraint::Using(_) | JoinConstraint::Natural) =
            constraint(&mut join.join_operator).as_deref()
        {
            *merges = true;
            *keeps_rows |= !inner || join.global;
        }
    }
}

/// The items with the columns that `*` stands for. `None` if it has options that are not known here.
fn written_out(items: &[SelectItem], columns: &[Named]) -> Option<Vec<SelectItem>> {
    let mut written = Vec::with_capacity(items.len());
    for item in items {
        match item {
            SelectItem::Wildcard(options) => written.extend(all(options, columns)?),
            item => written.push(item.clone()),
        }
    }
    Some(written)
}

/// The items that `*` stands for. `None` if it has options that are not known here.
pub(super) fn all(
    options: &WildcardAdditionalOptions,
    columns: &[Named],
) -> Option<Vec<SelectItem>> {
    if options.opt_ilike.is_some() || options.opt_alias.is_some() {
        return None;
    }
    let left_out = left_out(options);
    let replaced = options.opt_replace.iter().flat_map(|replace| &replace.items);
    let replaced: Vec<(String, &Expr)> =
        replaced.map(|item| (folded(&item.column_name), &item.expr)).collect();
    let renamed: Vec<(String, &Ident)> = match &options.opt_rename {
        None => Vec::new(),
        Some(RenameSelectItem::Single(one)) => vec![(folded(&one.ident), &one.alias)],
        Some(RenameSelectItem::Multiple(many)) => {
            many.iter().map(|one| (folded(&one.ident), &one.alias)).collect()
        }
    };
    let items = columns.iter().filter(|column| !left_out.contains(&column.name)).map(|column| {
        let new = replaced.iter().find(|(name, _)| *name == column.name);
        let name = renamed.iter().find(|(name, _)| *name == column.name);
        let alias = name.map(|(_, alias)| (*alias).clone());
        match (new, alias) {
            (None, None) => item(column),
            (new, alias) => SelectItem::ExprWithAlias {
                expr: new.map_or_else(|| column.expr.clone(), |(_, expr)| (*expr).clone()),
                alias: alias.unwrap_or_else(|| Ident::with_quote('"', &column.name)),
            },
        }
    });
    Some(items.collect())
}

pub(super) fn left_out(options: &WildcardAdditionalOptions) -> Vec<String> {
    let last = |name: &ObjectName| name.0.last().and_then(|part| part.as_ident()).map(folded);
    let mut names: Vec<String> = match &options.opt_exclude {
        None => Vec::new(),
        Some(ExcludeSelectItem::Single(name)) => last(name).into_iter().collect(),
        Some(ExcludeSelectItem::Multiple(many)) => many.iter().filter_map(last).collect(),
    };
    if let Some(except) = &options.opt_except {
        names.push(folded(&except.first_element));
        names.extend(except.additional_elements.iter().map(folded));
    }
    names
}

fn item(column: &Named) -> SelectItem {
    match &column.expr {
        // A column keeps its table, by which the rest of the query may name it.
        Expr::CompoundIdentifier(_) | Expr::Identifier(_) => {
            SelectItem::UnnamedExpr(column.expr.clone())
        }
        expr => SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', &column.name),
        },
    }
}

/// Names the items that are only a key, because what stands for it may have no name.
fn keep_names(items: &mut [SelectItem], columns: &[Named]) {
    for selected in items {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = selected
            && let Some(key) = key(columns, name)
        {
            *selected = item(key);
        }
    }
}

/// The key of that name, if no other column has it.
fn key<'a>(columns: &'a [Named], name: &Ident) -> Option<&'a Named> {
    let name = folded(name);
    let mut found = columns.iter().filter(|column| column.name == name);
    found.next().filter(|column| column.is_key && found.next().is_none())
}

/// Replaces the names of keys in ORDER BY, unless an item has the name: an item has precedence.
fn sort_by_keys(order: &mut OrderBy, items: &[SelectItem], columns: &[Named]) {
    let OrderByKind::Expressions(sorted) = &mut order.kind else { return };
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(folded(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => path.last().map(folded),
        _ => None,
    };
    let names: Vec<String> = items.iter().filter_map(name).collect();
    let unnamed: Vec<Named> =
        columns.iter().filter(|column| !names.contains(&column.name)).cloned().collect();
    for by in sorted {
        replace_names(by, |name| key(&unnamed, name).map(|key| key.expr.clone()));
    }
}
