//! Rows of several values: `(a, b) = (1, 2)`, `(a, b) IN ((1, 2), (3, 4))`, `(a, b) IN (SELECT …)`.
//!
//! Comparisons of rows are written as conditions on their values, whose nulls are SQL's: a row with
//! a null may still be known to be different.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, Query, Select, SetExpr, TableAliasColumnDef,
    TableFactor, UnaryOperator, Value,
};

use super::functions::binary;
use crate::sql::pivot::template;

/// Writes the conditions of a SELECT that only pass rows for which they are true, in which IN needs
/// no third value.
pub(super) fn write_conditions(select: &mut Select) {
    let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
    conditions.into_iter().flatten().for_each(write_condition);
}

fn write_condition(condition: &mut Expr) {
    match condition {
        Expr::Nested(inner) => write_condition(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            write_condition(left);
            write_condition(right);
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            if let Expr::InSubquery { negated, .. } = without_parentheses(expr) {
                let mut other = without_parentheses(expr).clone();
                if let Expr::InSubquery { negated: of_other, .. } = &mut other {
                    *of_other = !negated;
                }
                write_condition(&mut other);
                *condition = other;
            }
        }
        Expr::InSubquery { expr, subquery, negated } => {
            if let Some(row) = row(expr)
                && let Some(written) = known(row, subquery, *negated)
            {
                *condition = written;
            }
        }
        _ => (),
    }
}

fn without_parentheses(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// The values of a row.
fn row(expr: &Expr) -> Option<&[Expr]> {
    match without_parentheses(expr) {
        Expr::Tuple(values) if values.len() > 1 => Some(values),
        _ => None,
    }
}

/// An expression with rows, written with their values.
pub(super) fn written(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::BinaryOp { left, op, right } => compared(row(left)?, op, row(right)?),
        Expr::InList { expr, list, negated } => {
            let wanted = row(expr)?;
            let each = list.iter().map(|one| compared(wanted, &BinaryOperator::Eq, row(one)?));
            let each: Option<Vec<Expr>> = each.collect();
            let any = each?.into_iter().reduce(|one, other| binary(one, BinaryOperator::Or, other));
            Some(not_if(*negated, any?))
        }
        Expr::InSubquery { expr, subquery, negated } => {
            let wanted = row(expr)?;
            let case = Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: vec![
                    when(known(wanted, subquery, false)?, boolean(!negated)),
                    when(
                        not_if(true, known(wanted, subquery, true)?),
                        Expr::Value(Value::Null.into()),
                    ),
                ],
                else_result: Some(Box::new(boolean(*negated))),
            };
            Some(case)
        }
        _ => None,
    }
}

fn when(condition: Expr, result: Expr) -> CaseWhen {
    CaseWhen { condition, result }
}

fn boolean(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

fn not_if(negated: bool, expr: Expr) -> Expr {
    let nested = Box::new(Expr::Nested(Box::new(expr)));
    match negated {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: nested },
        false => Expr::Nested(nested),
    }
}

/// A comparison of two rows: by the first values that differ.
fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    if left.len() != right.len() {
        return None;
    }
    let pair = |op: &BinaryOperator| {
        let pairs = left.iter().zip(right);
        let op = op.clone();
        pairs.map(move |(one, other)| binary(one.clone(), op.clone(), other.clone()))
    };
    match op {
        Eq => pair(&Eq).reduce(|one, other| binary(one, And, other)),
        NotEq => pair(&NotEq).reduce(|one, other| binary(one, Or, other)),
        Lt | LtEq | Gt | GtEq => {
            let strict = if matches!(op, Lt | LtEq) { Lt } else { Gt };
            let last = left.len() - 1;
            let last = binary(left[last].clone(), op.clone(), right[last].clone());
            let before: Vec<(Expr, Expr)> =
                pair(&strict).zip(pair(&Eq)).take(left.len() - 1).collect();
            Some(
                before.into_iter().rev().fold(last, |rest, (differs, equal)| {
                    binary(differs, Or, binary(equal, And, rest))
                }),
            )
        }
        _ => None,
    }
}

/// Whether it is known that a query has a row, or (negated) that it has none.
fn known(wanted: &[Expr], query: &Query, negated: bool) -> Option<Expr> {
    let (mut found, mut select) = template("select 1 from (select 1) as row_values (a)").ok()?;
    let names: Vec<Ident> =
        (1..=wanted.len()).map(|n| Ident::with_quote('"', format!("row value {n}"))).collect();
    let TableFactor::Derived { subquery, alias: Some(alias), .. } =
        &mut select.from.first_mut()?.relation
    else {
        return None;
    };
    **subquery = query.clone();
    let column = |name: &Ident| TableAliasColumnDef { name: name.clone(), data_type: None };
    alias.columns = names.iter().map(column).collect();
    let columns: Vec<Expr> = names.into_iter().map(Expr::Identifier).collect();
    let equal = compared(&columns, &BinaryOperator::Eq, wanted)?;
    select.selection = Some(match negated {
        // A row that may be equal.
        true => Expr::IsNotFalse(Box::new(Expr::Nested(Box::new(equal)))),
        false => equal,
    });
    found.body = Box::new(SetExpr::Select(Box::new(select)));
    Some(Expr::Exists { subquery: Box::new(found), negated })
}
