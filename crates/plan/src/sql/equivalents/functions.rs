//! Functions of one value.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, UnaryOperator, Value,
};

use super::{lists, patterns};
use crate::sql::semantics::{call, cast, quoted, when};

/// Functions that have another name here, with the same arguments. Sorted by name.
const RENAMED: [(&str, &str); 42] = [
    ("approx_count_distinct", "approx_distinct"),
    ("apply", "list_transform"),
    ("arbitrary", "first_value"),
    ("array_apply", "list_transform"),
    ("ceiling", "ceil"),
    ("datepart", "date_part"),
    ("datetrunc", "date_trunc"),
    ("every", "bool_and"),
    ("filter", "list_filter"),
    ("first", "first_value"),
    ("gen_random_uuid", "uuid"),
    ("grouping_id", "grouping"),
    ("json_extract_path", "json_extract"),
    ("json_extract_path_text", "json_extract_string"),
    ("last", "last_value"),
    ("lcase", "lower"),
    ("list", "array_agg"),
    ("list_apply", "list_transform"),
    ("list_avg", "array_avg"),
    ("list_min", "array_min"),
    ("list_pack", "make_array"),
    ("list_value", "make_array"),
    ("logical_and", "bool_and"),
    ("logical_or", "bool_or"),
    ("mean", "avg"),
    ("ord", "ascii"),
    ("prefix", "starts_with"),
    ("regexp_matches", "regexp_like"),
    ("row_to_json", "to_json"),
    ("sign", "signum"),
    ("split", "string_to_array"),
    ("str_split", "string_to_array"),
    ("str_split_regex", "regexp_split_to_array"),
    ("string_split", "string_to_array"),
    ("string_split_regex", "regexp_split_to_array"),
    ("strlen", "octet_length"),
    ("struct_extract", "get_field"),
    ("suffix", "ends_with"),
    ("ucase", "upper"),
    ("to_binary", "bin"),
    ("unicode", "ascii"),
    ("variance", "var_samp"),
];

/// Functions that are written otherwise, for "did you mean".
const WRITTEN: [&str; 12] = [
    "if",
    "iff",
    "ifnull",
    "isfinite",
    "isinf",
    "regexp_full_match",
    "struct_pack",
    "xor",
    "count_if",
    "arg_max",
    "arg_min",
    "group_concat",
];

/// Returns the names that can be called although no function has them.
pub(crate) fn known() -> impl Iterator<Item = &'static str> {
    RENAMED.iter().map(|(name, _)| *name).chain(WRITTEN).chain(lists::WRITTEN)
}

/// The call of a function that has another name, with all its clauses.
pub(super) fn renamed(name: &str, function: &Function) -> Option<Expr> {
    let (_, other) = RENAMED.iter().find(|(known, _)| *known == name)?;
    let name = ObjectName::from(vec![Ident::new(*other)]);
    Some(Expr::Function(Function { name, ..function.clone() }))
}

/// A call by its arguments.
pub(super) fn written(name: &str, args: &[Expr]) -> Option<Expr> {
    match (name, args) {
        ("if" | "iff", [condition, then, otherwise]) => {
            Some(when(condition.clone(), then.clone(), otherwise.clone()))
        }
        ("xor", [left, right]) => {
            Some(binary(left.clone(), BinaryOperator::PGBitwiseXor, right.clone()))
        }
        ("json_group_array", [value]) => {
            Some(call("to_json", vec![call("array_agg", vec![value.clone()])]))
        }
        ("age", [of]) => Some(call("age", vec![call("current_date", Vec::new()), of.clone()])),
        ("mod", [left, right]) => Some(binary(left.clone(), BinaryOperator::Modulo, right.clone())),
        ("regexp_full_match", [of, pattern]) => {
            let whole = patterns::of_whole_text(pattern)?;
            Some(call("regexp_like", vec![of.clone(), whole]))
        }
        ("unhex" | "from_hex", [digits]) => decoded(digits, "hex"),
        ("from_base64", [text]) => decoded(text, "base64"),
        ("to_base64" | "base64", [of]) => {
            Some(call("encode", vec![of.clone(), quoted("base64pad")]))
        }
        ("list_first" | "array_first", [list]) => {
            Some(call("array_element", vec![list.clone(), whole(1)]))
        }
        ("list_last" | "array_last", [list]) => {
            Some(call("array_element", vec![list.clone(), whole(-1)]))
        }
        ("list_sort" | "array_sort", [list]) => Some(sorted(list, "ASC")),
        ("list_reverse_sort" | "array_reverse_sort", [list]) => Some(sorted(list, "DESC")),
        ("isinf", [of]) => Some(magnitude(of, BinaryOperator::Eq)),
        ("isfinite", [of]) => Some(magnitude(of, BinaryOperator::Lt)),
        _ => None,
    }
}

fn sorted(list: &Expr, order: &str) -> Expr {
    call("array_sort", vec![list.clone(), quoted(order), quoted("NULLS LAST")])
}

fn decoded(text: &Expr, encoding: &str) -> Option<Expr> {
    Some(call("decode", vec![text.clone(), quoted(encoding)]))
}

fn whole(number: i64) -> Expr {
    let digits = Expr::Value(Value::Number(number.unsigned_abs().to_string(), false).into());
    match number < 0 {
        true => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(digits) },
        false => digits,
    }
}

/// A comparison of a number without its sign with infinity, above which only NaN is.
fn magnitude(of: &Expr, op: BinaryOperator) -> Expr {
    let double = |of: Expr| cast(CastKind::Cast, of, DataType::DoublePrecision);
    let without_sign = call("abs", vec![double(of.clone())]);
    binary(without_sign, op, double(quoted("Infinity")))
}

/// `struct_pack(a := 1)` as `named_struct('a', 1)`.
pub(super) fn struct_pack(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let mut parts = Vec::new();
    for arg in &list.args {
        let FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } = arg else {
            return None;
        };
        parts.extend([quoted(&name.value), value.clone()]);
    }
    Some(call("named_struct", parts))
}

pub(super) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let nested = |side| Box::new(Expr::Nested(Box::new(side)));
    Expr::BinaryOp { left: nested(left), op, right: nested(right) }
}
