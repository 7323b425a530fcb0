//! IN and NOT IN with a subquery, where their null matters.
//!
//! `x NOT IN (…)` is null if it finds no value and `x` or a value is null. As a whole condition,
//! DataFusion plans it so if `x` is a column. For a constant, and inside of OR, CASE or NOT, it
//! knows only found and not found. There, the three values are computed from conditions that have
//! only two.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    lit, when,
};

/// Makes conditions with IN and subqueries null where SQL says so.
pub(super) fn respect_nulls(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(filter) if has_subquery(&filter.predicate)? => {
            let Filter { predicate, input, .. } = filter;
            let schema = input.schema();
            let terms = split_conjunction_owned(predicate).into_iter();
            let terms: Vec<Expr> =
                terms.map(|term| of_term(term, schema)).collect::<Result<_>>()?;
            let predicate = conjunction(terms).unwrap_or_else(|| lit(true));
            Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
        }
        node => Ok(Transformed::no(node)),
    })
    .data()
}

fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(matches!(part, Expr::InSubquery(_))))
}

/// A condition of which rows pass only if it is true.
fn of_term(term: Expr, schema: &DFSchemaRef) -> Result<Expr> {
    match positive(term) {
        Expr::InSubquery(found) if !found.negated || is_null_aware(&found.expr, schema)? => {
            Ok(Expr::InSubquery(found))
        }
        term => of_part(term, schema, true),
    }
}

/// Whether DataFusion joins by the key with regard to its nulls. It looks for them in the columns of
/// the key only, where NULLIF or CASE may be null although no column is.
fn is_null_aware(key: &Expr, schema: &DFSchemaRef) -> Result<bool> {
    let mut has_column = false;
    let mut has_nullable = false;
    key.apply(|part| {
        match part {
            Expr::OuterReferenceColumn(..) => (has_column, has_nullable) = (true, true),
            Expr::Column(column) => {
                has_column = true;
                has_nullable |= schema.nullable(column).unwrap_or(true);
            }
            _ => (),
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(has_column && (has_nullable || !key.nullable(schema.as_ref()).unwrap_or(true)))
}

/// `NOT (x IN …)` as `x NOT IN …`.
fn positive(expr: Expr) -> Expr {
    match expr {
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(found) => {
                Expr::InSubquery(InSubquery { negated: !found.negated, ..found })
            }
            inner => Expr::Not(Box::new(inner)),
        },
        expr => expr,
    }
}

/// A part of a condition; `null_is_false` if the whole condition treats its null as false.
fn of_part(part: Expr, schema: &DFSchemaRef, null_is_false: bool) -> Result<Expr> {
    match positive(part) {
        Expr::InSubquery(found) if null_is_false && !found.negated => Ok(Expr::InSubquery(found)),
        Expr::InSubquery(found) => three_valued(found, schema),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let side = |side: Box<Expr>| of_part(*side, schema, null_is_false).map(Box::new);
            Ok(Expr::BinaryExpr(BinaryExpr { left: side(left)?, op, right: side(right)? }))
        }
        part => {
            part.map_children(|child| of_part(child, schema, false).map(Transformed::yes)).data()
        }
    }
}

/// IN as a value: true, false or null.
pub(super) fn three_valued(asked: InSubquery, schema: &DFSchemaRef) -> Result<Expr> {
    let values = &asked.subquery.subquery;
    let (table, field) = values.schema().qualified_field(0);
    let value = Expr::from((table, field));
    let (value_may_be_null, key_may_be_null) =
        (field.is_nullable(), asked.expr.nullable(schema.as_ref()).unwrap_or(true));
    if !value_may_be_null && !key_may_be_null {
        return Ok(Expr::InSubquery(asked));
    }
    let InSubquery { expr: key, subquery, negated } = asked;
    let null = || lit(ScalarValue::Boolean(None));
    let found = InSubquery::new(key.clone(), subquery.clone(), false);
    let mut cases = when(Expr::InSubquery(found), lit(!negated));
    if key_may_be_null {
        let empty = Exists::new(subquery.clone(), true);
        cases = cases.when(Expr::Exists(empty), lit(negated)).when(key.is_null(), null());
    }
    if value_may_be_null {
        let nulls = LogicalPlanBuilder::from(Arc::unwrap_or_clone(Arc::clone(&subquery.subquery)))
            .filter(value.is_null())?
            .build()?;
        let nulls = Subquery { subquery: Arc::new(nulls), ..subquery };
        cases = cases.when(Expr::Exists(Exists::new(nulls, false)), null());
    }
    cases.otherwise(lit(negated))
}
