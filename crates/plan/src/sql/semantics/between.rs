//! `x BETWEEN SYMMETRIC a AND b`, whose bounds may be in either order.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

/// The operator that the parser makes of it, and of its negation. The right side is `a AND b`.
pub(crate) const SYMMETRIC: &str = "BETWEEN SYMMETRIC";
pub(crate) const NOT_SYMMETRIC: &str = "NOT BETWEEN SYMMETRIC";

/// The condition that a comparison with two bounds is. `None` for other operators.
pub(super) fn written(left: &Expr, op: &str, right: &Expr) -> Option<Expr> {
    let negated = match op {
        SYMMETRIC => false,
        NOT_SYMMETRIC => true,
        _ => return None,
    };
    let Expr::BinaryOp { left: one, op: BinaryOperator::And, right: other } = right else {
        return None;
    };
    let nested = |expr: &Expr| Box::new(Expr::Nested(Box::new(expr.clone())));
    let between = |low: &Expr, high: &Expr| Expr::Between {
        expr: nested(left),
        negated: false,
        low: nested(low),
        high: nested(high),
    };
    // By the smaller and the larger bound, a bound that is null would be left out.
    let either = Expr::Nested(Box::new(Expr::BinaryOp {
        left: nested(&between(one, other)),
        op: BinaryOperator::Or,
        right: nested(&between(other, one)),
    }));
    Some(match negated {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(either) },
        false => either,
    })
}
