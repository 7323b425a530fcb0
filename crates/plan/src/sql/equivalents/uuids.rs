//! Casts to UUIDs, and comparisons with them.
//!
//! A UUID is a checked text. What it is compared with is read as one too, as PostgreSQL and DuckDB read
//! a text there.

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Ident, LambdaFunction,
    LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens,
};

use super::plain_name;
use crate::sql::semantics::call;

/// The cast of an expression to a UUID, or to a list of them. `None` for other types.
pub(super) fn cast_of(of: &Expr, data_type: &DataType, kind: &CastKind) -> Option<Expr> {
    let function = match kind {
        CastKind::Cast | CastKind::DoubleColon => "as_uuid",
        CastKind::TryCast | CastKind::SafeCast => "try_as_uuid",
    };
    match data_type {
        DataType::Uuid => Some(call(function, vec![of.clone()])),
        // PostgreSQL's own types may be in quotes, in small letters.
        DataType::Custom(name, arguments) if arguments.is_empty() => {
            (name.to_string() == "\"uuid\"").then(|| call(function, vec![of.clone()]))
        }
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => {
            let name = Ident::new("uuid");
            let body = Box::new(cast_of(&Expr::Identifier(name.clone()), element, kind)?);
            let params =
                OneOrManyWithParens::One(LambdaFunctionParameter { name, data_type: None });
            let syntax = LambdaSyntax::LambdaKeyword;
            let each = Expr::Lambda(LambdaFunction { params, body, syntax });
            Some(call("list_transform", vec![of.clone(), each]))
        }
        _ => None,
    }
}

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
