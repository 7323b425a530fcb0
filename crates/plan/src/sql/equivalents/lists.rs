//! Aggregates that are functions of the list of all values: `mode(x)` of a group is `list_mode` of
//! its `array_agg(x)`.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, Value,
};

use super::{by_place, text};
use crate::sql::meaning::{call, cast, when};

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
pub(super) const WRITTEN: [&str; 9] = [
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

/// `quantile_cont(x, [0.25, 0.75])` as the list of `quantile_cont(x, 0.25)` and so on.
pub(super) fn quantiles(name: &str, function: &Function) -> Option<Expr> {
    const OF_PARTS: [&str; 5] =
        ["quantile", "quantile_cont", "quantile_disc", "percentile_cont", "percentile_disc"];
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
