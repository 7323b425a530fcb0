//! EXCLUDE in the frame of a window, written with the frame before the row (or its group) and the
//! frame behind it.
//!
//! Only functions whose values of two frames give that of both can be written so.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArguments, Ident, ObjectName,
    Value, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};

use super::functions::binary;
use super::plain_name;
use crate::sql::semantics::{call, cast};

/// Why a window with EXCLUDE is refused, with a hint.
pub(crate) fn refused(expr: &Expr) -> Option<(&'static str, &'static str)> {
    let Expr::Function(function) = expr else { return None };
    (excluded(function).is_some() && written(function).is_none()).then_some((
        "EXCLUDE is not supported with this function or frame",
        "EXCLUDE CURRENT ROW takes sum, count, avg, min or max and a frame of ROWS, EXCLUDE GROUP one \
         of GROUPS; or subtract the row's own value, sum(x) OVER (…) - x",
    ))
}

/// The units of the frame from which a function's window excludes one.
fn excluded(function: &Function) -> Option<Excluded> {
    let Some(WindowType::WindowSpec(window)) = &function.over else { return None };
    let name = window.window_name.as_ref().filter(|name| name.quote_style.is_none())?;
    match name.value.as_str() {
        "EXCLUDE CURRENT ROW" => Some(Excluded::One(WindowFrameUnits::Rows)),
        "EXCLUDE GROUP" => Some(Excluded::One(WindowFrameUnits::Groups)),
        "EXCLUDE TIES" => Some(Excluded::Ties),
        _ => None,
    }
}

enum Excluded {
    /// The unit in which the row is.
    One(WindowFrameUnits),
    Ties,
}

/// A function of a window with EXCLUDE, without it.
pub(super) fn written(function: &Function) -> Option<Expr> {
    let Excluded::One(units) = excluded(function)? else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let Some(WindowType::WindowSpec(window)) = &function.over else { return None };
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
    match plain_name(function)?.as_str() {
        "count" => sum(&parts("count")),
        "sum" => known_sum(parts("sum")),
        "min" => Some(call("least", parts("min"))),
        "max" => Some(call("greatest", parts("max"))),
        "avg" | "mean" => {
            let all = cast(CastKind::Cast, known_sum(parts("sum"))?, DataType::DoublePrecision);
            let zero = Expr::Value(Value::Number("0".to_owned(), false).into());
            let count = call("nullif", vec![sum(&parts("count"))?, zero]);
            Some(binary(all, BinaryOperator::Divide, count))
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
