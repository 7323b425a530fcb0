//! ROLLUP and CUBE of rows: `rollup((a, b), c)`, written as the grouping sets that it stands for.

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select};

/// The most elements of a CUBE that is written so: it has a grouping set for each set of elements.
const MAX_ELEMENTS: usize = 12;

/// Writes the groups of a SELECT.
pub(super) fn write(select: &mut Select) {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else { return };
    for group in groups {
        if let Some(sets) = sets(group) {
            *group = Expr::GroupingSets(sets);
        }
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
