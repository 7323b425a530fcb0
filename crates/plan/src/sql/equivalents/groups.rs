//! Groups of several sets: ROLLUP, CUBE and GROUPING SETS.
//!
//! ROLLUP and CUBE of rows, `rollup((a, b), c)`, are written as the grouping sets that they stand for, and
//! so are those inside of GROUPING SETS, and several of them: `GROUP BY rollup(a), cube(b)` has each set of
//! the one with each of the other. A number is the place of an item of the SELECT, as it is in
//! `GROUP BY 1`: the planner would take it as a constant. A row outside of them, `GROUP BY (a, b)`, is its
//! values.

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, Value};

use super::{arguments, plain_name};

/// The most grouping sets that are written so, as in PostgreSQL.
const MAX_SETS: usize = 4096;

const TOO_MANY_SETS: (&str, &str) = (
    "GROUP BY has more than 4096 grouping sets",
    "name the sets that you need in GROUPING SETS (…)",
);

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
    let mut groups = groups.clone();
    groups.iter_mut().for_each(read_nested);
    let counts = groups.iter().map(count);
    if counts.reduce(usize::saturating_mul).is_some_and(|count| count > MAX_SETS) {
        return Some(TOO_MANY_SETS);
    }
    let mut is_wrong = false;
    let mut look = |element: &mut Expr| {
        is_wrong |= place(element).is_some_and(|place| item(select, place).is_none());
    };
    groups.iter_mut().for_each(|group| each_element(group, &mut look));
    is_wrong.then_some((
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
    for group in groups.iter_mut() {
        read_nested(group);
        if let Expr::Nested(inner) = group
            && place(inner).is_some()
        {
            *group = inner.as_ref().clone();
        }
        each_element(group, &mut |element| {
            if let Some(item) = place(element).and_then(|place| item(select, place)) {
                *element = item.clone();
            }
        });
    }
    if let Some(sets) = sets(groups) {
        *groups = vec![Expr::GroupingSets(sets)];
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

/// Reads calls of `rollup` and `cube` inside of GROUPING SETS as what they are.
fn read_nested(group: &mut Expr) {
    let Expr::GroupingSets(sets) = group else { return };
    for set in sets {
        let [only] = set.as_mut_slice() else { continue };
        if let Expr::Function(function) = only
            && let Some(name) = plain_name(function)
            && matches!(name.as_str(), "rollup" | "cube")
            && let Some(args) = arguments(function)
        {
            let elements = args.into_iter().map(row).collect();
            *only = match name.as_str() {
                "rollup" => Expr::Rollup(elements),
                _ => Expr::Cube(elements),
            };
        }
        read_nested(only);
    }
}

/// Calls a function for each element of ROLLUP, CUBE and GROUPING SETS, also of those inside of others.
fn each_element(group: &mut Expr, call: &mut dyn FnMut(&mut Expr)) {
    for element in elements_mut(group).into_iter().flatten().flatten() {
        match elements(element) {
            Some(_) => each_element(element, call),
            None => call(element),
        }
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

/// The grouping sets of all groups, if the planner would not know them: of rows of several values, of
/// sets inside of others, and of several groups with sets.
fn sets(groups: &[Expr]) -> Option<Vec<Vec<Expr>>> {
    let has_sets = |group: &Expr| elements(group).is_some();
    let is_plain = |group: &Expr| match group {
        Expr::Rollup(elements) | Expr::Cube(elements) => elements.iter().all(|one| one.len() == 1),
        Expr::GroupingSets(sets) => !sets.iter().flatten().any(has_sets),
        _ => true,
    };
    let count = groups.iter().filter(|group| has_sets(group)).count();
    if count == 0 || count == 1 && groups.iter().all(is_plain) {
        return None;
    }
    let mut all = vec![Vec::new()];
    for group in groups {
        let sets = of_group(group);
        let with = |before: &Vec<Expr>| {
            let before = before.clone();
            sets.iter().map(move |set| all_of(&[before.clone(), set.clone()])).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    Some(all)
}

fn of_group(group: &Expr) -> Vec<Vec<Expr>> {
    match group {
        Expr::Rollup(elements) => {
            (0..=elements.len()).rev().map(|end| all_of(&elements[..end])).collect()
        }
        Expr::Cube(elements) => {
            let chosen = |set: usize| {
                let chosen = elements.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1);
                all_of(&chosen.map(|(_, element)| element.clone()).collect::<Vec<_>>())
            };
            (0..1_usize << elements.len()).rev().map(chosen).collect()
        }
        Expr::GroupingSets(sets) => {
            let of_set = |set: &Vec<Expr>| match set.as_slice() {
                [only] if elements(only).is_some() => of_group(only),
                set => vec![set.to_vec()],
            };
            sets.iter().flat_map(of_set).collect()
        }
        other => vec![vec![other.clone()]],
    }
}

/// How many grouping sets a group has.
fn count(group: &Expr) -> usize {
    match group {
        Expr::Rollup(elements) => elements.len() + 1,
        Expr::Cube(elements) => u32::try_from(elements.len())
            .ok()
            .and_then(|elements| 1_usize.checked_shl(elements))
            .unwrap_or(usize::MAX),
        Expr::GroupingSets(sets) => {
            let of_set = |set: &Vec<Expr>| set.first().map_or(1, count);
            sets.iter().map(of_set).fold(0, usize::saturating_add)
        }
        _ => 1,
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
