//! Aggregates that are functions of the list of all values: `mode(x)` of a group is `list_mode` of
//! its `array_agg(x)`.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, Value,
};

use super::{by_place, text};
use crate::sql::semantics::{call, cast, when};

/// Aggregates of numbers, each with the function of a list that it is.
const OF_NUMBERS: [(&str, &str); 4] = [
    ("kurtosis", "list_kurtosis"),
    ("mad", "list_mad"),
    ("product", "list_product_of"),
    ("skewness", "list_skewness"),
];

/// The names of aggregates in `list_aggregate(l, name)`, each with the function of a list that
/// computes it.
const OF_LISTS: [(&str, &str); 9] = [
    ("avg", "array_avg"),
    ("count", "list_count"),
    ("max", "array_max"),
    ("mean", "array_avg"),
    ("min", "array_min"),
    ("mode", "list_mode"),
    ("product", "list_product_of"),
    ("skewness", "list_skewness"),
    ("sum", "array_sum"),
];

/// The names of aggregates that are written so, for "did you mean".
pub(super) const WRITTEN: [&str; 11] = [
    "approx_quantile",
    "entropy",
    "histogram",
    "kurtosis",
    "mad",
    "mode",
    "percentile_disc",
    "product",
    "quantile",
    "quantile_disc",
    "skewness",
];

/// The call of an aggregate, with its clauses.
pub(super) fn written(name: &str, function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let args = by_place(&list.args)?;
    match (name, args.as_slice()) {
        ("approx_quantile", [_, part]) if is_part(part) => {
            let name = ObjectName::from(vec![Ident::new("approx_percentile_cont")]);
            Some(Expr::Function(Function { name, ..function.clone() }))
        }
        ("entropy", [value]) => {
            let zero = Expr::Value(Value::Number("0".to_owned(), false).into());
            let zero = cast(CastKind::Cast, zero, DataType::DoublePrecision);
            let entropy = call("list_entropy", vec![all(function, value)?]);
            Some(call("coalesce", vec![entropy, zero]))
        }
        ("histogram", [value]) => Some(call("list_histogram", vec![all(function, value)?])),
        ("mode", [value]) => Some(call("list_mode", vec![all(function, value)?])),
        ("mode", []) => {
            let [key] = function.within_group.as_slice() else { return None };
            Some(call("list_mode", vec![all(function, &key.expr)?]))
        }
        ("quantile_disc" | "quantile", [value, part]) => {
            Some(call("list_quantile_disc", vec![all(function, value)?, part.clone()]))
        }
        ("percentile_disc", [part]) => {
            let [key] = function.within_group.as_slice() else { return None };
            let descending = key.options.asc == Some(false);
            let descending = Expr::Value(Value::Boolean(descending).into());
            let args = vec![all(function, &key.expr)?, part.clone(), descending];
            Some(call("list_quantile_disc", args))
        }
        ("list_aggregate" | "array_aggregate" | "list_aggr", [of, aggregate]) => {
            let wanted = text(aggregate)?.to_lowercase();
            let (_, other) = OF_LISTS.iter().find(|(known, _)| *known == wanted)?;
            Some(call(other, vec![of.clone()]))
        }
        (_, [value]) => {
            let (_, of_list) = OF_NUMBERS.iter().find(|(known, _)| *known == name)?;
            let value = cast(CastKind::Cast, value.clone(), DataType::DoublePrecision);
            Some(call(of_list, vec![all(function, &value)?]))
        }
        _ => None,
    }
}

/// Whether a value is a number between 0 and 1, as the planner's approximate quantiles need it.
fn is_part(value: &Expr) -> bool {
    let Expr::Value(value) = value else { return false };
    let Value::Number(digits, _) = &value.value else { return false };
    digits.parse().is_ok_and(|part: f64| (0.0..=1.0).contains(&part))
}

/// `max(x, n)` as the list of the `n` largest values. The functions with one argument are the
/// planner's.
pub(super) fn extremes(name: &str, function: &Function) -> Option<Expr> {
    let largest = match name {
        "max" => true,
        "min" => false,
        _ => return None,
    };
    if !function.within_group.is_empty() {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let [value, count] = <[Expr; 2]>::try_from(by_place(&list.args)?).ok()?;
    let largest = Expr::Value(Value::Boolean(largest).into());
    Some(call("list_extremes", vec![all(function, &value)?, count, largest]))
}

/// `quantile_cont(x, [0.25, 0.75])` as the list of `quantile_cont(x, 0.25)` and so on.
pub(super) fn quantiles(name: &str, function: &Function) -> Option<Expr> {
    const OF_PARTS: [&str; 6] = [
        "approx_quantile",
        "quantile",
        "quantile_cont",
        "quantile_disc",
        "percentile_cont",
        "percentile_disc",
    ];
    let FunctionArguments::List(list) = &function.args else { return None };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(parts)))) = list.args.last()
    else {
        return None;
    };
    if !OF_PARTS.contains(&name) {
        return None;
    }
    let each = parts.elem.iter().map(|part| {
        let mut list = list.clone();
        *list.args.last_mut()? = FunctionArg::Unnamed(FunctionArgExpr::Expr(part.clone()));
        let args = FunctionArguments::List(list);
        let one = Function { args, ..function.clone() };
        Some(written(name, &one).unwrap_or(Expr::Function(one)))
    });
    let each: Vec<Expr> = each.collect::<Option<_>>()?;
    let any = Expr::IsNotNull(Box::new(each.first()?.clone()));
    let none = Expr::Value(Value::Null.into());
    // Of no values there is no list, as there is no quantile.
    Some(when(any, call("make_array", each), none))
}

/// The list of all values of an aggregate, with its FILTER, OVER and DISTINCT.
fn all(function: &Function, value: &Expr) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    if !list.clauses.is_empty() || function.null_treatment.is_some() {
        return None;
    }
    let mut list = list.clone();
    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(value.clone()))];
    Some(Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("array_agg")]),
        args: FunctionArguments::List(list),
        within_group: Vec::new(),
        ..function.clone()
    }))
}
