//! Groups of several sets: ROLLUP, CUBE and GROUPING SETS.
//!
//! ROLLUP and CUBE of rows, `rollup((a, b), c)`, are written as the grouping sets that they stand for. A
//! number is the place of an item of the SELECT, as it is in `GROUP BY 1`: the planner would take it as
//! a constant. A row outside of them, `GROUP BY (a, b)`, is its values.

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, Value};

/// The most elements of a CUBE that is written so: it has a grouping set for each set of elements.
const MAX_ELEMENTS: usize = 12;

/// Returns the reason why the groups of a SELECT are refused, with a hint.
pub(crate) fn refused(select: &Select) -> Option<(&'static str, &'static str)> {
    let (GroupByExpr::Expressions(_, modifiers) | GroupByExpr::All(modifiers)) = &select.group_by;
    if !modifiers.is_empty() {
        return Some((
            "GROUP BY … WITH ROLLUP, WITH CUBE and WITH TOTALS are not supported",
            "write GROUP BY ROLLUP (…) or GROUP BY CUBE (…)",
        ));
    }
    let GroupByExpr::Expressions(groups, _) = &select.group_by else { return None };
    let mut elements = groups.iter().filter_map(elements).flatten().flatten();
    let is_wrong =
        |element: &Expr| place(element).is_some_and(|place| item(select, place).is_none());
    elements.any(is_wrong).then_some((
        "a number in ROLLUP, CUBE or GROUPING SETS is not the place of an item of the SELECT",
        "places count from 1, and not the columns of *: name the column",
    ))
}

/// Writes the groups of a SELECT.
pub(super) fn write(select: &mut Select) {
    let mut group_by = select.group_by.clone();
    let GroupByExpr::Expressions(groups, _) = &mut group_by else { return };
    // A row is a group of each of its values.
    *groups = std::mem::take(groups).into_iter().flat_map(row).collect();
    for group in groups {
        if let Expr::Nested(inner) = group
            && place(inner).is_some()
        {
            *group = inner.as_ref().clone();
        }
        let elements = elements_mut(group).into_iter().flatten().flatten();
        for element in elements {
            if let Some(item) = place(element).and_then(|place| item(select, place)) {
                *element = item.clone();
            }
        }
        if let Some(sets) = sets(group) {
            *group = Expr::GroupingSets(sets);
        }
    }
    select.group_by = group_by;
}

fn row(group: Expr) -> Vec<Expr> {
    match group {
        Expr::Tuple(values) => values,
        group => vec![group],
    }
}

fn elements(group: &Expr) -> Option<&Vec<Vec<Expr>>> {
    match group {
        Expr::Rollup(elements) | Expr::Cube(elements) | Expr::GroupingSets(elements) => {
            Some(elements)
        }
        _ => None,
    }
}

fn elements_mut(group: &mut Expr) -> Option<&mut Vec<Vec<Expr>>> {
    match group {
        Expr::Rollup(elements) | Expr::Cube(elements) | Expr::GroupingSets(elements) => {
            Some(elements)
        }
        _ => None,
    }
}

/// The place that an expression is, from 1.
fn place(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Nested(inner) => place(inner),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.to_string().parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The item at a place, if the text of the SELECT shows it.
fn item(select: &Select, place: usize) -> Option<&Expr> {
    let items = select.projection.get(..place)?;
    items.iter().map(expr_of).collect::<Option<Vec<&Expr>>>()?.pop()
}

fn expr_of(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The grouping sets of a group that has rows of several values, or none.
fn sets(group: &Expr) -> Option<Vec<Vec<Expr>>> {
    let (Expr::Rollup(elements) | Expr::Cube(elements)) = group else { return None };
    if elements.iter().all(|element| element.len() == 1) {
        return None;
    }
    let count = elements.len();
    match group {
        Expr::Rollup(_) => Some((0..=count).rev().map(|end| all_of(&elements[..end])).collect()),
        _ if count > MAX_ELEMENTS => None,
        _ => {
            let chosen = |set: usize| {
                let chosen = elements.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1);
                all_of(&chosen.map(|(_, element)| element.clone()).collect::<Vec<_>>())
            };
            Some((0..1_usize << count).rev().map(chosen).collect())
        }
    }
}

/// The expressions of elements, each once.
fn all_of(elements: &[Vec<Expr>]) -> Vec<Expr> {
    let mut all: Vec<Expr> = Vec::new();
    for expr in elements.iter().flatten() {
        if !all.contains(expr) {
            all.push(expr.clone());
        }
    }
    all
}
