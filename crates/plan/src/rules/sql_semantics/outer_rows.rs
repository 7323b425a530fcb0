//! Subqueries that refer to the outer query, where the rows that they have for one outer row are
//! not those of a join.
//!
//! DataFusion moves the conditions on the outer query above the rest of such a subquery and makes
//! it a join. That is right for filters, projections and groups, and wrong where the subquery has a
//! row without any input (`count(*)` without GROUP BY, the total of a ROLLUP), and where it limits or
//! numbers its rows. Here, EXISTS and IN of one row are conditions on the values of that row, which
//! DataFusion computes for each outer row. Others are refused.

use std::sync::Arc;

use datafusion::common::not_impl_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery, binary_expr,
    lit, when,
};

use super::outer_shape::{SubqueryRows, has_outer, rows};

/// Mends or refuses subqueries that would not be computed for each outer row.
pub(super) fn for_each_outer_row(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        let mended = node.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(expr.transform_up(mended)?.update_data(|expr| name.restore(expr)))
        })?;
        match mended.transformed {
            true => mended.map_data(LogicalPlan::recompute_schema),
            false => Ok(mended),
        }
    })
    .data()
}

fn mended(part: Expr) -> Result<Transformed<Expr>> {
    match part {
        Expr::Exists(asked) if has_outer(&asked.subquery.subquery)? => exists(asked),
        Expr::InSubquery(asked) if has_outer(&asked.subquery.subquery)? => contains(asked),
        Expr::ScalarSubquery(asked) if has_outer(&asked.subquery)? => value(asked),
        part => Ok(Transformed::no(part)),
    }
}

fn refused<T>(what: &str, form: &str) -> Result<T> {
    not_impl_err!(
        "{form} of a subquery that refers to the outer query and has {what} is not supported"
    )
}

fn exists(asked: Exists) -> Result<Transformed<Expr>> {
    let plan = Arc::clone(&asked.subquery.subquery);
    let negated = asked.negated;
    let found = match rows(&plan)? {
        SubqueryRows::OfJoin
        | SubqueryRows::Numbered { filtered: false }
        | SubqueryRows::Behind { skip: 0, .. } => {
            return Ok(Transformed::no(Expr::Exists(asked)));
        }
        SubqueryRows::One | SubqueryRows::Several => lit(true),
        SubqueryRows::None => lit(false),
        SubqueryRows::OneIf(filter) => is_true(&filter, asked.subquery)?,
        SubqueryRows::Behind { skip, input, .. } => {
            let counted = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
                .aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?
                .build()?;
            let number = Expr::from(counted.schema().qualified_field(0));
            let more = number.gt(lit(i64::try_from(skip).unwrap_or(i64::MAX)));
            scalar(LogicalPlanBuilder::from(counted).project([more])?.build()?, asked.subquery)
        }
        SubqueryRows::Numbered { filtered: true } => return refused("window functions", "EXISTS"),
        SubqueryRows::Limited => return refused("LIMIT or OFFSET", "EXISTS"),
        SubqueryRows::Other => return refused("several aggregations or a UNION", "EXISTS"),
    };
    Ok(Transformed::yes(if negated { Expr::Not(Box::new(found)) } else { found }))
}

fn contains(asked: InSubquery) -> Result<Transformed<Expr>> {
    let plan = Arc::clone(&asked.subquery.subquery);
    let shape = rows(&plan)?;
    if matches!(shape, SubqueryRows::OfJoin) {
        return Ok(Transformed::no(Expr::InSubquery(asked)));
    }
    let InSubquery { expr: key, subquery, negated } = asked;
    let found = match shape {
        SubqueryRows::One => {
            let value = scalar(without_limits(&plan)?, subquery);
            binary_expr(*key, Operator::Eq, value)
        }
        SubqueryRows::OneIf(filter) => {
            let there = is_true(&filter, subquery.clone())?;
            let value = scalar(without_filter(&plan, &filter)?, subquery);
            when(there, binary_expr(*key, Operator::Eq, value)).otherwise(lit(false))?
        }
        SubqueryRows::None => lit(false),
        SubqueryRows::Numbered { .. } => return refused("window functions", "IN"),
        SubqueryRows::Behind { .. } | SubqueryRows::Limited => {
            return refused("LIMIT or OFFSET", "IN");
        }
        SubqueryRows::Several => return refused("a total over no rows", "IN"),
        SubqueryRows::OfJoin | SubqueryRows::Other => {
            return refused("several aggregations or a UNION", "IN");
        }
    };
    Ok(Transformed::yes(if negated { Expr::Not(Box::new(found)) } else { found }))
}

/// A subquery that is a value. DataFusion itself refuses one that is no aggregate.
fn value(asked: Subquery) -> Result<Transformed<Expr>> {
    const FORM: &str = "the value";
    match rows(&asked.subquery)? {
        SubqueryRows::OfJoin => Ok(Transformed::no(Expr::ScalarSubquery(asked))),
        SubqueryRows::One => {
            let plan = without_limits(&asked.subquery)?;
            Ok(Transformed::yes(scalar(plan, asked)))
        }
        SubqueryRows::OneIf(filter) => {
            let there = is_true(&filter, asked.clone())?;
            let value = scalar(without_filter(&asked.subquery, &filter)?, asked);
            Ok(Transformed::yes(when(there, value).end()?))
        }
        SubqueryRows::Behind { skip: 0, fetch: Some(1), input } => match first(&input, &asked)? {
            Some(plan) => Ok(Transformed::yes(scalar(plan, asked))),
            None => refused("LIMIT or OFFSET", FORM),
        },
        SubqueryRows::Numbered { .. } => refused("window functions", FORM),
        SubqueryRows::None | SubqueryRows::Behind { .. } | SubqueryRows::Limited => {
            refused("LIMIT or OFFSET", FORM)
        }
        SubqueryRows::Several => refused("a total over no rows", FORM),
        SubqueryRows::Other => refused("several aggregations or a UNION", FORM),
    }
}

/// The first row of a subquery whose last step is to take it, as an aggregate: it has one value for
/// each outer row, which is null without rows.
fn first(input: &LogicalPlan, asked: &Subquery) -> Result<Option<LogicalPlan>> {
    if !matches!(asked.subquery.as_ref(), LogicalPlan::Limit(_)) {
        return Ok(None);
    }
    let (value, sorted) = match input {
        LogicalPlan::Projection(projection) => match projection.expr.first() {
            Some(value) => (value.clone().unalias(), projection.input.as_ref()),
            None => return Ok(None),
        },
        input => (Expr::from(input.schema().qualified_field(0)), input),
    };
    let (keys, below) = match sorted {
        LogicalPlan::Sort(sort) => (sort.expr.clone(), sort.input.as_ref()),
        below => (Vec::new(), below),
    };
    let is_outer = value.contains_outer() || keys.iter().any(|key| key.expr.contains_outer());
    if is_outer || !matches!(rows(below)?, SubqueryRows::OfJoin) {
        return Ok(None);
    }
    let first = LogicalPlanBuilder::from(below.clone())
        .aggregate(Vec::<Expr>::new(), [first_value(value, keys)])?
        .build()?;
    Ok(Some(first))
}

/// Whether the condition on the only row is true, as a value.
fn is_true(filter: &Filter, subquery: Subquery) -> Result<Expr> {
    let found = Expr::IsTrue(Box::new(filter.predicate.clone())).alias("found");
    let plan = Projection::try_new(vec![found], Arc::clone(&filter.input))?;
    Ok(scalar(LogicalPlan::Projection(plan), subquery))
}

fn scalar(plan: LogicalPlan, subquery: Subquery) -> Expr {
    Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery })
}

/// Removes limits from a subquery that has at most one row for an outer row: a limit of at least
/// one does not change it.
fn without_limits(plan: &LogicalPlan) -> Result<LogicalPlan> {
    plan.clone()
        .transform_up(|node| match node {
            LogicalPlan::Limit(limit) if has_outer(&limit.input)? => {
                Ok(Transformed::yes(Arc::unwrap_or_clone(limit.input)))
            }
            node => Ok(Transformed::no(node)),
        })
        .data()
}

fn without_filter(plan: &LogicalPlan, filter: &Filter) -> Result<LogicalPlan> {
    let plan = plan.clone().transform_down(|node| match node {
        LogicalPlan::Filter(found) if found == *filter => {
            Ok(Transformed::yes(Arc::unwrap_or_clone(found.input)))
        }
        node => Ok(Transformed::no(node)),
    });
    without_limits(&plan.data()?)
}
