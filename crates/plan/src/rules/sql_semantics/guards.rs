//! Conditions that guard others from rows for which they fail.
//!
//! `k <> 1 AND 10 / (k - 1) > 3` divides by no zero if it is read from left to right, as PostgreSQL
//! does, and `CASE WHEN k <> 1 THEN 10 / (k - 1) > 3 END` by definition. DataFusion computes all
//! sides of AND for all rows of a batch, moves them to different operators, and makes a CASE of
//! conditions AND and OR. A CASE of numbers stays one, and computes a result only where it is
//! needed: such a condition becomes the CASE of a number that is compared.

use std::collections::HashSet;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, Operator, cast, lit,
};

/// Makes conditions that may fail computed only for the rows that their guards pass.
pub(super) fn respect_guards(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let kept = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let kept = expr.transform_up(|part| match part {
                part @ Expr::Case(_) if !is_condition(&part, &schema)? => Ok(Transformed::no(part)),
                Expr::Case(case) => Ok(Transformed::yes(of_numbers(case))),
                part => Ok(Transformed::no(part)),
            })?;
            Ok(kept.update_data(|expr| name.restore(expr)))
        })?;
        let changed = kept.transformed;
        let node = match changed {
            true => kept.data.recompute_schema()?,
            false => kept.data,
        };
        match node {
            LogicalPlan::Filter(filter) => {
                let kept = guarded(filter)?.update_data(LogicalPlan::Filter);
                Ok(Transformed::new_transformed(kept.data, kept.transformed || changed))
            }
            node => Ok(Transformed::new_transformed(node, changed)),
        }
    })
    .data()
}

/// A condition that may fail.
fn is_condition(case: &Expr, schema: &DFSchema) -> Result<bool> {
    let is_boolean = case.get_type(schema).is_ok_and(|of| of == DataType::Boolean);
    Ok(is_boolean && may_divide_by_zero(case)?)
}

/// A CASE whose results are conditions, by numbers.
fn of_numbers(case: Case) -> Expr {
    let number = |expr: Expr| cast(expr, DataType::Int8);
    let results = case.when_then_expr.into_iter();
    let case = Case {
        expr: case.expr,
        when_then_expr: results.map(|(when, then)| (when, Box::new(number(*then)))).collect(),
        else_expr: case.else_expr.map(|other| Box::new(number(*other))),
    };
    cast(Expr::Case(case), DataType::Boolean)
}

fn guarded(filter: Filter) -> Result<Transformed<Filter>> {
    let terms = split_conjunction_owned(filter.predicate.clone());
    let mut kept: Vec<Expr> = Vec::with_capacity(terms.len());
    let mut changed = false;
    for term in terms {
        let guards = match may_divide_by_zero(&term)? && !is_key(&term) {
            true => guards(&kept, &term)?,
            false => None,
        };
        kept.push(match guards {
            Some(guards) => {
                changed = true;
                of_numbers(Case {
                    expr: None,
                    when_then_expr: vec![(Box::new(guards), Box::new(term))],
                    else_expr: Some(Box::new(lit(false))),
                })
            }
            None => term,
        });
    }
    if !changed {
        return Ok(Transformed::no(filter));
    }
    let predicate = conjunction(kept).unwrap_or_else(|| lit(true));
    Ok(Transformed::yes(Filter::try_new(predicate, filter.input)?))
}

/// The terms before it that are about the same columns.
fn guards(before: &[Expr], term: &Expr) -> Result<Option<Expr>> {
    let columns = term.column_refs();
    let mut guards = Vec::new();
    for guard in before {
        let shared = guard.column_refs().into_iter().any(|column| columns.contains(column));
        if shared && !guard.is_volatile() && !has_subquery(guard)? {
            guards.push(guard.clone());
        }
    }
    match has_subquery(term)? || term.is_volatile() {
        true => Ok(None),
        false => Ok(conjunction(guards)),
    }
}

fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|part| {
        Ok(matches!(part, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_)))
    })
}

/// An equation of two tables, by which they may be joined.
fn is_key(term: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = term else { return false };
    let tables = |side: &Expr| -> HashSet<String> {
        let of = |column: &&Column| column.relation.as_ref().map(ToString::to_string);
        side.column_refs().iter().filter_map(of).collect()
    };
    let left = tables(left);
    let right = tables(right);
    !left.is_empty() && !right.is_empty() && left != right
}

/// Whether an expression divides by something that is no number.
fn may_divide_by_zero(expr: &Expr) -> Result<bool> {
    expr.exists(|part| {
        Ok(match part {
            Expr::BinaryExpr(BinaryExpr {
                op: Operator::Divide | Operator::Modulo, right, ..
            }) => !matches!(right.as_ref(), Expr::Literal(..)),
            _ => false,
        })
    })
}
