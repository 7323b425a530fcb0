//! ASOF JOIN as it is written: each row of the left side with the one row of the right side that is
//! nearest by a comparison, among those with equal keys.
//!
//! The parser reads such a join as one of another kind (`dialect/tokens.rs`). Here its comparison is
//! put into a function, by which the plan of the join is found again (`rules/sql_semantics/asof_join.rs`).

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::logical_expr::{ScalarUDF, Volatility, create_udf};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Join, JoinConstraint, JoinOperator, Query, Select, TableFactor,
    TableWithJoins, VisitMut, VisitorMut,
};

use super::semantics::call;

/// The name of the function, which is hidden from SQL.
pub(crate) const NEAREST: &str = "checked_asof";

/// The function of a comparison, which is only planned.
pub(crate) fn function() -> Arc<ScalarUDF> {
    let boolean = DataType::Boolean;
    let volatility = Volatility::Immutable;
    Arc::new(create_udf(
        NEAREST,
        vec![boolean.clone()],
        boolean,
        volatility,
        Arc::new(|_| plan_err!("`{NEAREST}` is not a function of SQL")),
    ))
}

/// The reason why a query is refused, and a hint.
type RefusalReason = (&'static str, &'static str);

const FORM: &str =
    "write FROM a ASOF JOIN b ON a.key = b.key AND a.time >= b.time, or USING (key, time)";

/// Marks the comparisons of a query's ASOF joins.
///
/// # Errors
/// The reason why an ASOF join is not supported, with a hint.
pub(crate) fn write(query: &mut Query) -> Result<(), RefusalReason> {
    struct Marking;
    impl VisitorMut for Marking {
        type Break = RefusalReason;

        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<RefusalReason> {
            match select.from.iter_mut().try_for_each(mark_joins) {
                Ok(()) => ControlFlow::Continue(()),
                Err(wrong) => ControlFlow::Break(wrong),
            }
        }
    }
    match VisitMut::visit(query, &mut Marking) {
        ControlFlow::Break(wrong) => Err(wrong),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn mark_joins(from: &mut TableWithJoins) -> Result<(), RefusalReason> {
    let factors = from.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut from.relation).chain(factors) {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            mark_joins(table_with_joins)?;
        }
    }
    from.joins.iter_mut().filter(|join| join.global).try_for_each(mark)
}

/// A join with USING stays marked as it is, until the columns of its sides are known.
fn mark(join: &mut Join) -> Result<(), RefusalReason> {
    use JoinOperator::{Inner, Join, Left, LeftOuter};
    let (Join(constraint) | Inner(constraint) | Left(constraint) | LeftOuter(constraint)) =
        &mut join.join_operator
    else {
        return Err(("ASOF is there for inner and left joins", FORM));
    };
    match constraint {
        JoinConstraint::On(condition) => {
            *condition = marked(condition)?;
            join.global = false;
            Ok(())
        }
        JoinConstraint::Using(names) if names.len() > 1 => Ok(()),
        _ => Err(("ASOF JOIN needs ON, or USING with a key and a time", FORM)),
    }
}

fn marked(condition: &Expr) -> Result<Expr, RefusalReason> {
    let mut terms = Vec::new();
    let mut found = 0;
    terms_of(condition, &mut terms);
    let mut written = Vec::with_capacity(terms.len());
    for term in terms {
        match term {
            Expr::BinaryOp { op: BinaryOperator::Eq, .. } => written.push(term.clone()),
            Expr::BinaryOp {
                op:
                    BinaryOperator::Gt
                    | BinaryOperator::GtEq
                    | BinaryOperator::Lt
                    | BinaryOperator::LtEq,
                ..
            } => {
                found += 1;
                written.push(nearest(term.clone()));
            }
            _ => return Err(("ASOF JOIN takes equalities and one comparison", FORM)),
        }
    }
    if found != 1 {
        return Err(("ASOF JOIN needs one comparison by >=, >, <= or <", FORM));
    }
    let all = written.into_iter().reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    });
    all.ok_or(("ASOF JOIN needs a condition", FORM))
}

/// A comparison that is marked.
pub(crate) fn nearest(comparison: Expr) -> Expr {
    call(NEAREST, vec![comparison])
}

fn terms_of<'a>(condition: &'a Expr, terms: &mut Vec<&'a Expr>) {
    match condition {
        Expr::Nested(inner) => terms_of(inner, terms),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            terms_of(left, terms);
            terms_of(right, terms);
        }
        term => terms.push(term),
    }
}
