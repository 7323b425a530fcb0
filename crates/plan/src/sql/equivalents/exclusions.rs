//! EXCLUDE in the frame of a window.
//!
//! Where the values of two frames give that of both, the function is written with the frame before the
//! row (or its group) and the frame behind it, which keep few rows in memory. Other functions and frames
//! have functions of windows of their own (`exclusions` of `snowmelt_execute`), which are given the whole
//! frame. Functions that have no frame, such as `rank`, leave nothing out.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, ObjectName, Value, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use snowmelt_execute::sql_functions::exclusions;

use super::functions::binary;
use super::plain_name;
use crate::sql::semantics::call;

/// Why a window with EXCLUDE is refused, with a hint.
pub(crate) fn refused(expr: &Expr) -> Option<(&'static str, &'static str)> {
    let Expr::Function(function) = expr else { return None };
    (excluded(function).is_some() && written(function).is_none()).then_some((
        "EXCLUDE is not supported with this function",
        "it takes sum, count, avg, min, max, median, stddev, var_pop, bool_and, array_agg, string_agg, \
         first_value, last_value, nth_value and the like, without ORDER BY in their arguments",
    ))
}

/// The words behind EXCLUDE in a function's window.
fn excluded(function: &Function) -> Option<&str> {
    let Some(WindowType::WindowSpec(window)) = &function.over else { return None };
    let name = window.window_name.as_ref().filter(|name| name.quote_style.is_none())?;
    name.value.strip_prefix("EXCLUDE ")
}

/// A function of a window with EXCLUDE, without it.
pub(super) fn written(function: &Function) -> Option<Expr> {
    let kind = excluded(function)?;
    let Some(WindowType::WindowSpec(window)) = &function.over else { return None };
    let name = plain_name(function)?;
    if FRAMELESS.contains(&name.as_str()) {
        let window = WindowSpec { window_name: None, ..window.clone() };
        let over = Some(WindowType::WindowSpec(window));
        return Some(Expr::Function(Function { over, ..function.clone() }));
    }
    let units = match kind {
        "CURRENT ROW" => Some(WindowFrameUnits::Rows),
        "GROUP" => Some(WindowFrameUnits::Groups),
        _ => None,
    };
    let in_parts = units.and_then(|units| in_parts(&name, function, window, units));
    in_parts.or_else(|| as_own(&name, function, window, kind))
}

/// Functions of windows that have no frame.
const FRAMELESS: [&str; 8] =
    ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead"];

/// The function of windows with its frame, which is given the condition of FILTER as an argument.
fn as_own(name: &str, function: &Function, window: &WindowSpec, kind: &str) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_of_nulls = |clause: &FunctionArgumentClause| {
        matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(_))
    };
    if !list.clauses.iter().all(is_of_nulls) || !function.within_group.is_empty() {
        return None;
    }
    let name = match name {
        "mean" => "avg",
        "list" => "array_agg",
        "variance" | "var_samp" => "var",
        "stddev_samp" => "stddev",
        "first" => "first_value",
        "last" => "last_value",
        "count_star" => "count",
        name => name,
    };
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    let name = exclusions::name(name, is_distinct, &kind.to_lowercase())?;
    let mut function = function.clone();
    let condition = function.filter.take();
    let condition = condition.unwrap_or_else(|| Box::new(Expr::Value(Value::Boolean(true).into())));
    function.name = ObjectName::from(vec![Ident::with_quote('"', name)]);
    let window = WindowSpec { window_name: None, ..window.clone() };
    function.over = Some(WindowType::WindowSpec(window));
    if let FunctionArguments::List(list) = &mut function.args {
        let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
        let is_all =
            |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
        let unnamed = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
        list.args.iter_mut().filter(|arg| is_all(arg)).for_each(|arg| *arg = unnamed(one()));
        if list.args.is_empty() {
            list.args.push(unnamed(one()));
        }
        list.args.push(unnamed(*condition));
        list.duplicate_treatment = None;
    }
    Some(Expr::Function(function))
}

/// The value of the frames before and behind the row or its group.
fn in_parts(
    name: &str,
    function: &Function,
    window: &WindowSpec,
    units: WindowFrameUnits,
) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let frames = frames(window.window_frame.as_ref()?, units)?;
    // Different values of two frames may be the same ones.
    if list.args.len() != 1 || list.duplicate_treatment.is_some() || frames.is_empty() {
        return None;
    }
    let part = |name: &str, frame: &WindowFrame| {
        let window =
            WindowSpec { window_name: None, window_frame: Some(frame.clone()), ..window.clone() };
        Expr::Function(Function {
            name: ObjectName::from(vec![Ident::new(name)]),
            over: Some(WindowType::WindowSpec(window)),
            ..function.clone()
        })
    };
    let parts = |name: &str| frames.iter().map(|frame| part(name, frame)).collect::<Vec<_>>();
    match name {
        "count" => sum(&parts("count")),
        "sum" => known_sum(parts("sum")),
        "min" => Some(call("least", parts("min"))),
        "max" => Some(call("greatest", parts("max"))),
        "avg" | "mean" => {
            let mut none = part("avg", frames.first()?);
            if let Expr::Function(none) = &mut none {
                none.filter = Some(Box::new(Expr::Value(Value::Boolean(false).into())));
            }
            // It has the type of the average, which the sum does not tell.
            let args = vec![known_sum(parts("sum"))?, sum(&parts("count"))?, none];
            Some(call(exclusions::MEAN, args))
        }
        _ => None,
    }
}

fn sum(parts: &[Expr]) -> Option<Expr> {
    let parts = parts.iter().cloned();
    parts.reduce(|one, other| Expr::Nested(Box::new(binary(one, BinaryOperator::Plus, other))))
}

/// The sum of those parts that are not null.
fn known_sum(mut parts: Vec<Expr>) -> Option<Expr> {
    if parts.len() > 1 {
        parts.insert(0, sum(&parts)?);
    }
    Some(call("coalesce", parts))
}

/// The frames that are left of one without the unit of the row. `None` if they are not known.
fn frames(frame: &WindowFrame, units: WindowFrameUnits) -> Option<Vec<WindowFrame>> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let start = plain(&frame.start_bound);
    let end = frame.end_bound.as_ref().map_or(CurrentRow, plain);
    let is_whole = (&start, &end) == (&Preceding(None), &Following(None));
    if frame.units != units && !is_whole {
        return None;
    }
    let of = |start_bound: &WindowFrameBound, end_bound: &WindowFrameBound| {
        let end_bound = Some(end_bound.clone());
        WindowFrame { units, start_bound: start_bound.clone(), end_bound }
    };
    if matches!(start, Following(_)) || matches!(end, Preceding(_)) {
        // The row is in none of these frames.
        return Some(vec![of(&start, &end)]);
    }
    let one = || Some(Box::new(Expr::Value(Value::Number("1".to_owned(), false).into())));
    let before = (start != CurrentRow).then(|| of(&start, &Preceding(one())));
    let behind = (end != CurrentRow).then(|| of(&Following(one()), &end));
    Some(before.into_iter().chain(behind).collect())
}

/// A bound, which is the current row if no row is between them.
fn plain(bound: &WindowFrameBound) -> WindowFrameBound {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let is_zero = |distance: &Expr| {
        matches!(distance, Expr::Value(value)
            if matches!(&value.value, Value::Number(digits, _) if digits == "0"))
    };
    match bound {
        Preceding(Some(distance)) | Following(Some(distance)) if is_zero(distance) => CurrentRow,
        other => other.clone(),
    }
}
