//! How many rows a subquery has for one row of the outer query that it refers to.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, GroupingSet, Limit, LogicalPlan,
};

/// The rows of a subquery for one outer row.
pub(super) enum Rows {
    /// The rows that meet the conditions, as in a join.
    OfJoin,
    /// Exactly one row, whatever the conditions.
    One,
    /// The only row of an aggregate, if it meets a condition.
    OneIf(Filter),
    /// At least one row, whatever the conditions.
    Several,
    None,
    /// The rows that meet the conditions, without the first `skip` ones.
    Behind {
        skip: usize,
        /// The most that are taken.
        fetch: Option<usize>,
        input: Arc<LogicalPlan>,
    },
    /// Some of the rows that meet the conditions.
    Limited,
    /// The rows that meet the conditions, with numbers by all of these rows; `filtered` if only
    /// some of the numbers are kept.
    Numbered {
        filtered: bool,
    },
    Other,
}

/// True if a plan refers to the outer query.
pub(super) fn has_outer(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The rows of a subquery, which refers to the outer query.
pub(super) fn rows(plan: &LogicalPlan) -> Result<Rows> {
    if !has_outer(plan)? {
        return Ok(Rows::OfJoin);
    }
    match plan {
        LogicalPlan::Projection(it) => rows(&it.input),
        LogicalPlan::SubqueryAlias(it) => rows(&it.input),
        LogicalPlan::Sort(it) => rows(&it.input),
        LogicalPlan::Distinct(Distinct::On(it)) => first(rows(&it.input)?),
        LogicalPlan::Distinct(Distinct::All(input)) => distinct(rows(input)?),
        LogicalPlan::Filter(filter) => filtered(filter),
        LogicalPlan::Aggregate(aggregate) => aggregated(aggregate),
        LogicalPlan::Limit(limit) => limited(limit),
        LogicalPlan::Window(window) => first(rows(&window.input)?),
        LogicalPlan::Union(_) => Ok(Rows::Other),
        plan => {
            for input in plan.inputs() {
                if !matches!(rows(input)?, Rows::OfJoin) {
                    return Ok(Rows::Other);
                }
            }
            Ok(Rows::OfJoin)
        }
    }
}

/// Returns the shape behind an operator that numbers rows or picks first ones, which depends on all
/// rows.
fn first(rows: Rows) -> Result<Rows> {
    Ok(match rows {
        Rows::OfJoin => Rows::Numbered { filtered: false },
        Rows::One | Rows::None | Rows::Numbered { filtered: false } => rows,
        _ => Rows::Other,
    })
}

fn distinct(rows: Rows) -> Result<Rows> {
    Ok(match rows {
        Rows::OfJoin | Rows::One | Rows::OneIf(_) | Rows::Several | Rows::None => rows,
        Rows::Numbered { filtered: false } => rows,
        _ => Rows::Other,
    })
}

fn filtered(filter: &Filter) -> Result<Rows> {
    Ok(match rows(&filter.input)? {
        Rows::OfJoin => Rows::OfJoin,
        Rows::None => Rows::None,
        // An outer reference in the condition itself cannot be computed in the subquery.
        Rows::One if !filter.predicate.contains_outer() => Rows::OneIf(filter.clone()),
        Rows::Numbered { .. } => Rows::Numbered { filtered: true },
        Rows::Limited | Rows::Behind { .. } => Rows::Limited,
        _ => Rows::Other,
    })
}

fn aggregated(aggregate: &Aggregate) -> Result<Rows> {
    let input = rows(&aggregate.input)?;
    if !matches!(input, Rows::OfJoin) {
        return Ok(match input {
            Rows::Limited | Rows::Behind { .. } => Rows::Limited,
            Rows::Numbered { .. } => Rows::Numbered { filtered: true },
            _ => Rows::Other,
        });
    }
    if aggregate.group_expr.is_empty() {
        return Ok(Rows::One);
    }
    let has_total = aggregate.group_expr.iter().any(|group| match group {
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    });
    Ok(if has_total { Rows::Several } else { Rows::OfJoin })
}

fn limited(limit: &Limit) -> Result<Rows> {
    let input = rows(&limit.input)?;
    let (skip, fetch) = match (limit.get_skip_type()?, limit.get_fetch_type()?) {
        (SkipType::Literal(skip), FetchType::Literal(fetch)) => (skip, fetch),
        _ => return Ok(Rows::Other),
    };
    Ok(match input {
        _ if fetch == Some(0) => Rows::None,
        Rows::None => Rows::None,
        Rows::One if skip > 0 => Rows::None,
        Rows::One => Rows::One,
        Rows::OneIf(_) if skip > 0 => Rows::None,
        Rows::OneIf(filter) => Rows::OneIf(filter),
        Rows::Several if skip == 0 => Rows::Several,
        Rows::OfJoin | Rows::Numbered { filtered: false } => {
            Rows::Behind { skip, fetch, input: Arc::clone(&limit.input) }
        }
        Rows::Limited | Rows::Behind { .. } => Rows::Limited,
        _ => Rows::Other,
    })
}
