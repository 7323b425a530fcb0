//! Calls in terms of the columns of other plans, and plans with other columns.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::logical_plan::{Filter, Projection, Sort};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::find::{CallColumn, CallSet, calls_any, column, exists, is_reusable};

/// Moves the projection below a sort that keeps the first rows above the sort: then its calls are
/// made for these rows only. `None` if the projection has no calls, or if a key of the sort needs
/// one.
pub(super) fn above_first_rows(sort: &Sort) -> Result<Option<Projection>> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else { return Ok(None) };
    if sort.fetch.is_none() || !projection.expr.iter().any(calls_any) {
        return Ok(None);
    }
    let mut keys = sort.expr.clone();
    for key in &mut keys {
        let source = |index: usize| projection.expr.get(index).map(|one| one.clone().unalias());
        let (inner, all_found) = replaced_columns(key.expr.clone(), &projection.schema, source)?;
        if !all_found || inner.is_volatile() {
            return Ok(None);
        }
        key.expr = inner;
    }
    let input = Arc::clone(&projection.input);
    let sorted = LogicalPlan::Sort(Sort { expr: keys, input, fetch: sort.fetch });
    Projection::try_new(projection.expr.clone(), Arc::new(sorted)).map(Some)
}

pub(super) fn union(wanted: &[Expr], calls: &CallSet) -> Vec<Expr> {
    let mut all = wanted.to_vec();
    all.extend(calls.all().filter(|call| !wanted.contains(call)).cloned());
    all
}

pub(super) fn without(calls: Vec<Expr>, known: &[CallColumn]) -> Vec<Expr> {
    without_known(calls.iter(), known)
}

pub(super) fn without_known<'a>(
    calls: impl Iterator<Item = &'a Expr>,
    known: &[CallColumn],
) -> Vec<Expr> {
    calls.filter(|call| column(known, call).is_none()).cloned().collect()
}

/// True if `part` is inside of `whole`.
pub(super) fn has(whole: &Expr, part: &Expr) -> bool {
    exists(whole, |one| one == part)
}

/// Returns the calls whose columns are all in `schema`.
pub(super) fn within(calls: &[Expr], schema: &DFSchema) -> Vec<Expr> {
    let is_inside =
        |call: &&Expr| call.column_refs().iter().all(|column| schema.has_column(column));
    calls.iter().filter(is_inside).cloned().collect()
}

/// Returns calls over columns of `schema`, each with the same call in terms of an input: `source`
/// gives the input's expression for a column. Calls for which the input lacks a column are left
/// out.
pub(super) fn translated(
    calls: &[Expr],
    schema: &DFSchema,
    source: impl Fn(usize) -> Option<Expr>,
) -> Result<Vec<CallForms>> {
    let mut pairs = Vec::new();
    for call in calls {
        let (inner, all_found) = replaced_columns(call.clone(), schema, &source)?;
        if all_found && is_reusable(&inner) {
            pairs.push((call.clone(), inner));
        }
    }
    Ok(pairs)
}

/// Replaces the columns of an expression by other expressions. False if a column has none.
pub(super) fn replaced_columns(
    expression: Expr,
    schema: &DFSchema,
    source: impl Fn(usize) -> Option<Expr>,
) -> Result<(Expr, bool)> {
    let mut all_found = true;
    let replaced = expression.transform_down(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        match schema.index_of_column(column).ok().and_then(&source) {
            // What is put in has columns of the input.
            Some(inner) => Ok(Transformed::new(inner, true, TreeNodeRecursion::Jump)),
            None => {
                all_found = false;
                Ok(Transformed::no(part))
            }
        }
    })?;
    Ok((replaced.data, all_found))
}

/// A call in terms of the output and of the input of an operator.
pub(super) type CallForms = (Expr, Expr);

/// A column by position; `None` if its name means another column.
pub(super) fn column_at(schema: &DFSchema, index: usize) -> Option<Column> {
    let column = Column::from(schema.qualified_field(index));
    (schema.index_of_column(&column).ok() == Some(index)).then_some(column)
}

pub(super) fn columns(schema: &DFSchema) -> Vec<Expr> {
    schema.iter().map(|field| Expr::Column(Column::from(field))).collect()
}

pub(super) fn filtered(plan: LogicalPlan, conditions: Vec<Expr>) -> LogicalPlan {
    match conjunction(conditions) {
        Some(condition) => LogicalPlan::Filter(Filter::new(condition, Arc::new(plan))),
        None => plan,
    }
}

/// The plan with the columns of a schema only.
pub(super) fn restored(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    if plan.schema().fields().len() == schema.fields().len() {
        return Ok(plan);
    }
    let projection = Projection::try_new(columns(schema), Arc::new(plan))?;
    Ok(LogicalPlan::Projection(projection))
}

/// The plan with the names of a schema that has as many columns.
pub(super) fn renamed(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let now = plan.schema();
    if now
        .iter()
        .zip(schema.iter())
        .all(|(now, then)| now.0 == then.0 && now.1.name() == then.1.name())
    {
        return Ok(plan);
    }
    let all = (0..schema.fields().len()).map(|at| named_as(now, at, schema, at)).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(all, Arc::new(plan))?))
}

/// A column with the name that it had before.
pub(super) fn named_as(now: &DFSchema, at: usize, before: &DFSchema, was_at: usize) -> Expr {
    let column = Column::from(now.qualified_field(at));
    let (qualifier, field) = before.qualified_field(was_at);
    match column.relation.as_ref() == qualifier && column.name() == field.name() {
        true => Expr::Column(column),
        false => Expr::Column(column).alias_qualified(qualifier.cloned(), field.name()),
    }
}
