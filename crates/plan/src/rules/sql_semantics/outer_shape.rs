//! How many rows a subquery has for one row of the outer query that it refers to.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, GroupingSet, Limit, LogicalPlan,
};

/// The rows of a subquery for one outer row.
pub(super) enum SubqueryRows {
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
pub(super) fn rows(plan: &LogicalPlan) -> Result<SubqueryRows> {
    if !has_outer(plan)? {
        return Ok(SubqueryRows::OfJoin);
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
        LogicalPlan::Union(_) => Ok(SubqueryRows::Other),
        plan => {
            for input in plan.inputs() {
                if !matches!(rows(input)?, SubqueryRows::OfJoin) {
                    return Ok(SubqueryRows::Other);
                }
            }
            Ok(SubqueryRows::OfJoin)
        }
    }
}

/// Returns the shape behind an operator that numbers rows or picks first ones, which depends on all
/// rows.
fn first(rows: SubqueryRows) -> Result<SubqueryRows> {
    Ok(match rows {
        SubqueryRows::OfJoin => SubqueryRows::Numbered { filtered: false },
        SubqueryRows::One | SubqueryRows::None | SubqueryRows::Numbered { filtered: false } => rows,
        _ => SubqueryRows::Other,
    })
}

fn distinct(rows: SubqueryRows) -> Result<SubqueryRows> {
    Ok(match rows {
        SubqueryRows::OfJoin
        | SubqueryRows::One
        | SubqueryRows::OneIf(_)
        | SubqueryRows::Several
        | SubqueryRows::None => rows,
        SubqueryRows::Numbered { filtered: false } => rows,
        _ => SubqueryRows::Other,
    })
}

fn filtered(filter: &Filter) -> Result<SubqueryRows> {
    Ok(match rows(&filter.input)? {
        SubqueryRows::OfJoin => SubqueryRows::OfJoin,
        SubqueryRows::None => SubqueryRows::None,
        // An outer reference in the condition itself cannot be computed in the subquery.
        SubqueryRows::One if !filter.predicate.contains_outer() => {
            SubqueryRows::OneIf(filter.clone())
        }
        SubqueryRows::Numbered { .. } => SubqueryRows::Numbered { filtered: true },
        SubqueryRows::Limited | SubqueryRows::Behind { .. } => SubqueryRows::Limited,
        _ => SubqueryRows::Other,
    })
}

fn aggregated(aggregate: &Aggregate) -> Result<SubqueryRows> {
    let input = rows(&aggregate.input)?;
    if !matches!(input, SubqueryRows::OfJoin) {
        return Ok(match input {
            SubqueryRows::Limited | SubqueryRows::Behind { .. } => SubqueryRows::Limited,
            SubqueryRows::Numbered { .. } => SubqueryRows::Numbered { filtered: true },
            _ => SubqueryRows::Other,
        });
    }
    if aggregate.group_expr.is_empty() {
        return Ok(SubqueryRows::One);
    }
    let has_total = aggregate.group_expr.iter().any(|group| match group {
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    });
    Ok(if has_total { SubqueryRows::Several } else { SubqueryRows::OfJoin })
}

fn limited(limit: &Limit) -> Result<SubqueryRows> {
    let input = rows(&limit.input)?;
    let (skip, fetch) = match (limit.get_skip_type()?, limit.get_fetch_type()?) {
        (SkipType::Literal(skip), FetchType::Literal(fetch)) => (skip, fetch),
        _ => return Ok(SubqueryRows::Other),
    };
    Ok(match input {
        _ if fetch == Some(0) => SubqueryRows::None,
        SubqueryRows::None => SubqueryRows::None,
        SubqueryRows::One if skip > 0 => SubqueryRows::None,
        SubqueryRows::One => SubqueryRows::One,
        SubqueryRows::OneIf(_) if skip > 0 => SubqueryRows::None,
        SubqueryRows::OneIf(filter) => SubqueryRows::OneIf(filter),
        SubqueryRows::Several if skip == 0 => SubqueryRows::Several,
        SubqueryRows::OfJoin | SubqueryRows::Numbered { filtered: false } => {
            SubqueryRows::Behind { skip, fetch, input: Arc::clone(&limit.input) }
        }
        SubqueryRows::Limited | SubqueryRows::Behind { .. } => SubqueryRows::Limited,
        _ => SubqueryRows::Other,
    })
}
