//! Expressions that the planner would compute with another meaning than SQL's, written so that it
//! computes them as PostgreSQL does.
//!
//! Runs on the statement that is planned, not on the one that names the columns of the answer.

mod between;
mod bytes;
mod glob;
mod literal;
mod similar;

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, JoinOperator, ObjectName, Select, TableFactor,
    TableWithJoins, Value, VisitMut, VisitorMut,
};

pub(crate) use between::{NOT_SYMMETRIC, SYMMETRIC};
pub(crate) use glob::OPERATOR as GLOB_OPERATOR;
pub(crate) use literal::text;

/// Writes a statement so that the planner gives it SQL's meaning.
pub(crate) fn as_in_sql(statement: &mut Statement) {
    if let Statement::Statement(statement) = statement {
        _ = VisitMut::visit(statement.as_mut(), &mut Meaning);
    }
}

/// Returns the reason why an expression is refused that has no meaning here, with a hint.
pub(crate) fn refused(expr: &Expr) -> Option<(&'static str, &'static str)> {
    match expr {
        Expr::SimilarTo { pattern, escape_char, .. } => {
            let escape = escape_char.as_ref().map(|escape| &escape.value);
            let known = similar::text(pattern)
                .is_none_or(|text| similar::expression(text, escape).is_some());
            (!known || !similar::is_literal(pattern)).then_some((
                "SIMILAR TO needs a pattern in quotes, and an escape of one character",
                "for other patterns use regexp_like(text, pattern)",
            ))
        }
        Expr::BinaryOp { op: BinaryOperator::Custom(op), right, .. } if op == GLOB_OPERATOR => {
            let is_null =
                matches!(right.as_ref(), Expr::Value(value) if value.value == Value::Null);
            let known = text(right).is_some_and(|pattern| glob::expression(pattern).is_some());
            (!known && !is_null).then_some((
                "GLOB needs a pattern in quotes, whose brackets and backslashes are complete",
                "for other patterns use LIKE, or regexp_like(text, pattern)",
            ))
        }
        Expr::Collate { collation, .. } if !is_of_bytes(&collation.to_string()) => Some((
            "COLLATE is not supported: texts are compared and sorted by their bytes",
            "compare and sort lower(x), to ignore the case",
        )),
        Expr::Cast { expr, data_type, .. } => refused_bytes(expr, data_type),
        Expr::TypedString(typed) => {
            refused_bytes(&Expr::Value(typed.value.clone()), &typed.data_type)
        }
        _ => None,
    }
}

fn refused_bytes(text: &Expr, data_type: &DataType) -> Option<(&'static str, &'static str)> {
    (bytes::is_bytes(data_type) && !bytes::is_valid(text)).then_some((
        "a text of bytes has a backslash that is not followed by x and two digits",
        "write \\x41 for a byte, \\\\ for a backslash, or X'41ff'",
    ))
}

/// Collations that are the order of bytes.
fn is_of_bytes(collation: &str) -> bool {
    let name = collation.trim_matches('"').to_lowercase();
    matches!(name.as_str(), "c" | "posix" | "ucs_basic" | "binary")
}

struct Meaning;

impl VisitorMut for Meaning {
    type Break = Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        select.from.iter_mut().for_each(one_sided);
        ControlFlow::Continue(())
    }

    /// Replaces an expression after its parts, so that a cast sees the number that it converts.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Some(written) = written(expr) {
            *expr = written;
        }
        ControlFlow::Continue(())
    }
}

fn written(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Value(value) => match &value.value {
            // The planner reads the digits only.
            Value::Number(digits, long) if digits.to_string().contains('_') => {
                let digits = digits.to_string().replace('_', "");
                Some(Expr::Value(Value::Number(digits, *long).into()))
            }
            Value::Number(digits, _) => literal::large(&digits.to_string()),
            _ => None,
        },
        Expr::AtTimeZone { timestamp, time_zone } => {
            let args = vec![time_zone.as_ref().clone(), timestamp.as_ref().clone()];
            Some(call("timezone", args))
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGExp, right } => {
            let double = |of: &Expr| cast(CastKind::Cast, of.clone(), DataType::DoublePrecision);
            Some(call("power", vec![double(left), double(right)]))
        }
        Expr::BinaryOp { left, op: BinaryOperator::Custom(op), right } if op == GLOB_OPERATOR => {
            let matched = match text(right) {
                Some(pattern) => quoted(&glob::expression(pattern)?),
                // Of null, the answer is null.
                None => right.as_ref().clone(),
            };
            let op = BinaryOperator::PGRegexMatch;
            Some(Expr::BinaryOp { left: left.clone(), op, right: Box::new(matched) })
        }
        Expr::BinaryOp { left, op: BinaryOperator::Custom(op), right } => {
            between::written(left, op, right)
        }
        Expr::Collate { expr, .. } => Some(expr.as_ref().clone()),
        // Of whole numbers as `/`, which rounds to zero.
        Expr::BinaryOp { left, op: BinaryOperator::DuckIntegerDivide, right } => {
            let left = left.clone();
            let right = right.clone();
            Some(Expr::BinaryOp { left, op: BinaryOperator::Divide, right })
        }
        Expr::SimilarTo { negated, expr, pattern, escape_char } => {
            let escape = escape_char.as_ref().map(|escape| &escape.value);
            let matched = match similar::text(pattern) {
                Some(text) => quoted(&similar::expression(text, escape)?),
                // Of null, the answer is null.
                None => pattern.as_ref().clone(),
            };
            let op = match negated {
                true => BinaryOperator::PGRegexNotMatch,
                false => BinaryOperator::PGRegexMatch,
            };
            Some(Expr::BinaryOp { left: expr.clone(), op, right: Box::new(matched) })
        }
        Expr::TypedString(typed) if bytes::is_bytes(&typed.data_type) => {
            bytes::cast_of(&Expr::Value(typed.value.clone()), &typed.data_type, &CastKind::Cast)
        }
        Expr::TypedString(typed) => {
            let text = Expr::Value(typed.value.clone());
            literal::timestamp(&text, &typed.data_type, &CastKind::Cast)
        }
        Expr::Cast { kind, expr, data_type, format: None, array: false } => {
            bytes::cast_of(expr, data_type, kind)
                .or_else(|| literal::timestamp(expr, data_type, kind))
                .or_else(|| literal::number(expr, data_type, kind))
        }
        _ => None,
    }
}

/// `SEMI JOIN` keeps rows of the left side, as does `LEFT SEMI JOIN`.
fn one_sided(from: &mut TableWithJoins) {
    let factors = from.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut from.relation).chain(factors) {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            one_sided(table_with_joins);
        }
    }
    for join in &mut from.joins {
        match &join.join_operator {
            JoinOperator::Semi(on) => join.join_operator = JoinOperator::LeftSemi(on.clone()),
            JoinOperator::Anti(on) => join.join_operator = JoinOperator::LeftAnti(on.clone()),
            _ => (),
        }
    }
}

pub(crate) fn cast(kind: CastKind, expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind, expr: Box::new(expr), data_type, array: false, format: None }
}

pub(crate) fn quoted(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

pub(crate) fn when(condition: Expr, result: Expr, otherwise: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result }],
        else_result: Some(Box::new(otherwise)),
    }
}

pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
