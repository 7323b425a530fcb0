//! Aggregates that are others with a FILTER, an ORDER BY or a separator.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, ObjectName, OrderByExpr, OrderByOptions,
    Value,
};

use super::by_place;
use super::functions::{binary, struct_pack};
use crate::sql::semantics::{call, cast, quoted};

/// The call of an aggregate, with its clauses.
pub(super) fn written(name: &str, function: &Function) -> Option<Expr> {
    match name {
        "count_if" | "countif" => count_if(function),
        "arg_max" | "argmax" | "max_by" => at_extreme(function, false),
        "arg_min" | "argmin" | "min_by" => at_extreme(function, true),
        "group_concat" | "listagg" => joined(function),
        "geomean" | "geometric_mean" => geometric_mean(function),
        "sem" => standard_error(function),
        "struct_pack" => struct_pack(function),
        _ => None,
    }
}

/// Returns the arguments of a call. `None` if they are distinct or sorted.
fn arguments(function: &Function) -> Option<Vec<Expr>> {
    match &function.args {
        FunctionArguments::List(list)
            if list.clauses.is_empty() && list.duplicate_treatment.is_none() =>
        {
            by_place(&list.args)
        }
        _ => None,
    }
}

/// `count_if(x)` as `count(*) FILTER (WHERE x)`.
fn count_if(function: &Function) -> Option<Expr> {
    let [condition] = <[Expr; 1]>::try_from(arguments(function)?).ok()?;
    let mut counted = of(function, "count", vec![FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
    counted.filter = filter(&counted, [condition]);
    Some(Expr::Function(counted))
}

/// `arg_max(x, y)` as the first `x` by descending `y`, of the rows that have both, and
/// `arg_max(x, y, n)` as the list of the first `n`.
fn at_extreme(function: &Function, ascending: bool) -> Option<Expr> {
    let mut args = arguments(function)?;
    let count = if args.len() == 3 { args.pop() } else { None };
    let [value, by] = <[Expr; 2]>::try_from(args).ok()?;
    if function.over.is_some() {
        return None;
    }
    let is_there = |expr: &Expr| Expr::IsNotNull(Box::new(Expr::Nested(Box::new(expr.clone()))));
    let conditions = [is_there(&value), is_there(&by)];
    let aggregate = if count.is_some() { "array_agg" } else { "first_value" };
    let mut first = of(function, aggregate, vec![unnamed(value)]);
    first.filter = filter(&first, conditions);
    if let FunctionArguments::List(list) = &mut first.args {
        // There are no nulls, but in lists and structs, where they are larger than all values.
        let options = OrderByOptions { asc: Some(ascending), nulls_first: Some(!ascending) };
        let key = OrderByExpr { expr: by, options, with_fill: None };
        list.clauses.push(FunctionArgumentClause::OrderBy(vec![key]));
    }
    let first = Expr::Function(first);
    Some(match count {
        Some(count) => call("list_head", vec![first, count]),
        None => first,
    })
}

/// `geomean(x)` as `exp(avg(ln(x)))`.
fn geometric_mean(function: &Function) -> Option<Expr> {
    let [value] = <[Expr; 1]>::try_from(arguments(function)?).ok()?;
    let logarithm = call("ln", vec![cast(CastKind::Cast, value, DataType::DoublePrecision)]);
    let mean = of(function, "avg", vec![unnamed(logarithm)]);
    Some(call("exp", vec![Expr::Function(mean)]))
}

/// `sem(x)` as `stddev_pop(x) / sqrt(count(x))`.
fn standard_error(function: &Function) -> Option<Expr> {
    let [value] = <[Expr; 1]>::try_from(arguments(function)?).ok()?;
    let part = |name| Expr::Function(of(function, name, vec![unnamed(value.clone())]));
    // Of no values, the error is null, and no quotient by 0.
    let count = call("nullif", vec![call("sqrt", vec![part("count")]), number("0")]);
    Some(binary(part("stddev_pop"), BinaryOperator::Divide, count))
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

/// `group_concat(x)` as `string_agg(x::varchar, ',')`, in the order of WITHIN GROUP.
fn joined(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let mut args = by_place(&list.args)?;
    if args.len() == 1 {
        args.push(quoted(","));
    }
    let [value, separator] = <[Expr; 2]>::try_from(args).ok()?;
    let value = cast(CastKind::Cast, value, DataType::Varchar(None));
    let mut joined = function.clone();
    joined.name = ObjectName::from(vec![Ident::new("string_agg")]);
    let order = std::mem::take(&mut joined.within_group);
    if let FunctionArguments::List(list) = &mut joined.args {
        list.args = vec![unnamed(value), unnamed(separator)];
        if !order.is_empty() {
            list.clauses.push(FunctionArgumentClause::OrderBy(order));
        }
    }
    Some(Expr::Function(joined))
}

fn unnamed(expr: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
}

/// The call of another function with the same clauses.
fn of(function: &Function, name: &str, args: Vec<FunctionArg>) -> Function {
    let mut other = function.clone();
    other.name = ObjectName::from(vec![Ident::new(name)]);
    if let FunctionArguments::List(list) = &mut other.args {
        list.args = args;
    }
    other
}

/// The filter of a function with further conditions.
fn filter<const N: usize>(function: &Function, further: [Expr; N]) -> Option<Box<Expr>> {
    let all = function.filter.as_deref().cloned().into_iter().chain(further);
    all.reduce(|before, next| binary(before, BinaryOperator::And, next)).map(Box::new)
}
