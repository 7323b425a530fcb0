//! Subqueries that are a value, and compare their rows with the outer query otherwise than by `=`:
//! `(SELECT max(b.x) FROM b WHERE b.k <= a.k)`.
//!
//! DataFusion computes such a value by groups of the columns that are equal. So the outer columns that
//! are compared are put into the subquery: its rows are joined with the different values of these
//! columns by the comparison, and those values are equal to the columns of the outer row. Where a null
//! of the outer row may meet the condition, two nulls are equal.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit,
};

use super::outer_shape::{SubqueryRows, has_outer, rows};

/// The name of the values of the outer columns, in each subquery.
const OUTER: &str = "outer values";

/// Puts the outer columns into the subqueries that need it.
pub(super) fn by_key(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        if !matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Filter(_)) {
            return Ok(Transformed::no(node));
        }
        let Some(input) = node.inputs().first().map(|input| (*input).clone()) else {
            return Ok(Transformed::no(node));
        };
        if has_outer(&input)? || varies(&input)? {
            return Ok(Transformed::no(node));
        }
        node.map_expressions(|expr| {
            expr.transform_up(|part| match part {
                Expr::ScalarSubquery(asked) => match with_keys(&asked, &input)? {
                    Some(mended) => Ok(Transformed::yes(Expr::ScalarSubquery(mended))),
                    None => Ok(Transformed::no(Expr::ScalarSubquery(asked))),
                },
                part => Ok(Transformed::no(part)),
            })
        })
    })
    .data()
}

/// Whether a plan has other rows the next time.
fn varies(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= node.expressions().iter().any(Expr::is_volatile);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The subquery with the outer columns in it. `None` if DataFusion computes it as it is, or if it has
/// another form.
fn with_keys(asked: &Subquery, input: &LogicalPlan) -> Result<Option<Subquery>> {
    if !matches!(rows(&asked.subquery)?, SubqueryRows::One) {
        return Ok(None);
    }
    let mut found = Vec::new();
    let plan =
        Arc::unwrap_or_clone(Arc::clone(&asked.subquery)).transform_down(|node| match node {
            LogicalPlan::Filter(filter) if filter.predicate.contains_outer() => {
                match joined(&filter, input)? {
                    Some(joined) => {
                        found.push(());
                        Ok(Transformed::yes(joined))
                    }
                    None => Ok(Transformed::no(LogicalPlan::Filter(filter))),
                }
            }
            node => Ok(Transformed::no(node)),
        });
    let plan = plan.data()?;
    if found.len() != 1 {
        return Ok(None);
    }
    let outer_ref_columns = plan.all_out_ref_exprs();
    let subquery = Arc::new(plan);
    Ok(Some(Subquery { subquery, outer_ref_columns, spans: asked.spans.clone() }))
}

/// The rows of a filter, joined with the outer columns that it does not compare by `=`.
fn joined(filter: &Filter, input: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let (compared, others): (Vec<Expr>, Vec<Expr>) =
        split_conjunction_owned(filter.predicate.clone())
            .into_iter()
            .partition(|term| term.contains_outer() && !is_equality(term));
    if compared.is_empty() || !compared.iter().all(is_plain) || has_outer(&filter.input)? {
        return Ok(None);
    }
    let sees_nulls = !compared.iter().all(is_comparison);
    let columns = outer_columns(&compared)?;
    if columns.iter().any(|column| !input.schema().has_column(column)) {
        return Ok(None);
    }
    let name = |column: &Column| {
        let place = columns.iter().position(|known| known == column).unwrap_or_default();
        Column::new(Some(OUTER), format!("outer value {}", place + 1))
    };
    let values = values(input, &columns, &name, sees_nulls)?;
    let within = |term: Expr| {
        term.transform_up(|part| match part {
            Expr::OuterReferenceColumn(_, column) => {
                Ok(Transformed::yes(Expr::Column(name(&column))))
            }
            part => Ok(Transformed::no(part)),
        })
        .data()
    };
    let on = compared.into_iter().map(within).collect::<Result<Vec<_>>>()?;
    let mut equal = others;
    for column in &columns {
        let field = Arc::clone(input.schema().field_from_column(column)?);
        let outer = Expr::OuterReferenceColumn(field, column.clone());
        let Column { name, .. } = name(column);
        let value = |name: String| Expr::Column(Column::new(Some(OUTER), name));
        if sees_nulls {
            let zero = zero(input, column)?;
            equal.push(value(known(&name)).eq(coalesce(vec![outer.clone(), zero])));
            equal.push(value(is_null(&name)).eq(outer.is_null()));
        } else {
            equal.push(value(name).eq(outer));
        }
    }
    let rows = LogicalPlanBuilder::from(Arc::unwrap_or_clone(Arc::clone(&filter.input))).join_on(
        values,
        JoinType::Inner,
        on,
    )?;
    let rows = match conjunction(equal) {
        Some(equal) => rows.filter(equal)?,
        None => rows,
    };
    // All above has the same columns as before.
    let columns = filter.input.schema().columns().into_iter().map(Expr::Column);
    Ok(Some(rows.project(columns)?.build()?))
}

/// The columns of the outer query in some conditions.
fn outer_columns(terms: &[Expr]) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for term in terms {
        term.apply(|part| {
            if let Expr::OuterReferenceColumn(_, column) = part
                && !columns.contains(column)
            {
                columns.push(column.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(columns)
}

/// The different values of some columns.
fn values(
    input: &LogicalPlan,
    columns: &[Column],
    name: &dyn Fn(&Column) -> Column,
    sees_nulls: bool,
) -> Result<LogicalPlan> {
    let mut values = Vec::new();
    for column in columns {
        let outer = Expr::Column(column.clone());
        let Column { name, .. } = name(column);
        if sees_nulls {
            let zero = zero(input, column)?;
            values.push(coalesce(vec![outer.clone(), zero]).alias(known(&name)));
            values.push(outer.clone().is_null().alias(is_null(&name)));
        }
        values.push(outer.alias(name));
    }
    LogicalPlanBuilder::from(input.clone()).project(values)?.distinct()?.alias(OUTER)?.build()
}

/// The names of the columns by which nulls are equal: of a value that is never null, and whether it
/// stands for a null. DataFusion knows equality of a column only.
fn known(name: &str) -> String {
    format!("{name} or zero")
}

fn is_null(name: &str) -> String {
    format!("{name} is null")
}

/// A value of the type of a column.
fn zero(input: &LogicalPlan, column: &Column) -> Result<Expr> {
    let field = input.schema().field_from_column(column)?;
    Ok(lit(ScalarValue::new_default(field.data_type())?))
}

/// Whether a condition can be computed in a join.
fn is_plain(term: &Expr) -> bool {
    let is_other = |part: &Expr| {
        matches!(part, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_))
            || part.is_volatile_node()
    };
    // The visitor never fails.
    !term.exists(|part| Ok(is_other(part))).unwrap_or(true)
}

/// Whether a condition is a column that is equal to a value of the outer query, which DataFusion
/// joins by.
fn is_equality(term: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = term else { return false };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(_), value) | (value, Expr::Column(_)) => !value.any_column_refs(),
        _ => false,
    }
}

/// Whether a condition is a comparison that is never true for a null.
fn is_comparison(term: &Expr) -> bool {
    use Operator::{Divide, Eq, Gt, GtEq, Lt, LtEq, Minus, Multiply, NotEq, Plus};
    fn is_strict(part: &Expr) -> bool {
        match part {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::Literal(..) => true,
            Expr::Cast(cast) => is_strict(&cast.expr),
            Expr::Negative(inner) => is_strict(inner),
            Expr::BinaryExpr(BinaryExpr { left, op: Plus | Minus | Multiply | Divide, right }) => {
                is_strict(left) && is_strict(right)
            }
            _ => false,
        }
    }
    match term {
        Expr::BinaryExpr(BinaryExpr { left, op: Eq | Lt | LtEq | Gt | GtEq | NotEq, right }) => {
            is_strict(left) && is_strict(right)
        }
        Expr::Between(between) if !between.negated => {
            [&between.expr, &between.low, &between.high].into_iter().all(|part| is_strict(part))
        }
        _ => false,
    }
}
