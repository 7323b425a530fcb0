//! Comparisons with a UUID, which is a checked text: what it is compared with is read as one too, as
//! PostgreSQL and DuckDB read a text there.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};

use super::plain_name;
use crate::sql::meaning::call;

/// Reads the other sides of a comparison with a UUID as UUIDs.
pub(super) fn write_comparison(expr: &mut Expr) {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    match expr {
        Expr::BinaryOp { left, op: Eq | NotEq | Lt | LtEq | Gt | GtEq, right } => {
            read(&mut [left.as_mut(), right.as_mut()]);
        }
        Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
            read(&mut [left.as_mut(), right.as_mut()]);
        }
        Expr::Between { expr, low, high, .. } => {
            read(&mut [expr.as_mut(), low.as_mut(), high.as_mut()]);
        }
        Expr::InList { expr, list, .. } => {
            let mut sides: Vec<&mut Expr> = vec![expr.as_mut()];
            sides.extend(list.iter_mut());
            read(&mut sides);
        }
        _ => (),
    }
}

fn read(sides: &mut [&mut Expr]) {
    if sides.iter().any(|side| is_uuid(side)) {
        for side in sides.iter_mut().filter(|side| !is_uuid(side)) {
            **side = call("as_uuid", vec![side.clone()]);
        }
    }
}

fn is_uuid(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_uuid(inner),
        Expr::Function(function) => {
            plain_name(function).is_some_and(|name| name == "as_uuid" || name == "try_as_uuid")
        }
        _ => false,
    }
}
