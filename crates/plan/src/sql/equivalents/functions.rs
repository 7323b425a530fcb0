//! Functions of one value.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, UnaryOperator, Value,
};

use super::{lists, text};
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
const WRITTEN: [&str; 19] = [
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
    "array",
    "isoyear",
    "list_unique",
    "map_contains",
    "map_contains_value",
    "regexp_split_to_table",
    "time_bucket",
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
            let whole = of_whole_text(pattern)?;
            Some(call("regexp_like", vec![of.clone(), whole]))
        }
        ("list_unique" | "array_unique", [list]) => {
            Some(call("list_count", vec![call("array_distinct", vec![list.clone()])]))
        }
        ("map_contains", [map, key]) => has("map_keys", map, key),
        ("map_contains_value", [map, value]) => has("map_values", map, value),
        ("regexp_split_to_table", [of, pattern]) => {
            let parts = call("regexp_split_to_array", vec![of.clone(), pattern.clone()]);
            Some(call("unnest", vec![parts]))
        }
        ("encode", [of]) => Some(call("bytes_of_text", vec![of.clone()])),
        ("decode", [of]) => Some(call("text_of_bytes", vec![of.clone()])),
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

/// A pattern in quotes as one of the whole text.
fn of_whole_text(pattern: &Expr) -> Option<Expr> {
    Some(quoted(&format!("^(?:{})$", text(pattern)?)))
}

/// Whether the list of a map's keys or values has one.
fn has(list: &str, map: &Expr, one: &Expr) -> Option<Expr> {
    Some(call("array_has", vec![call(list, vec![map.clone()]), one.clone()]))
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

/// A function behind its first argument: `x.upper()` is `upper(x)`.
pub(super) fn method(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Function(function) => {
            let idents: Option<Vec<Ident>> =
                function.name.0.iter().map(|part| part.as_ident().cloned()).collect();
            let mut path = idents?;
            let name = path.pop()?;
            let of = match path.as_slice() {
                [] => return None,
                [schema] if SCHEMAS.contains(&schema.value.to_lowercase().as_str()) => None,
                [column] => Some(Expr::Identifier(column.clone())),
                _ => Some(Expr::CompoundIdentifier(path)),
            };
            with_first(function, name, of)
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            let mut of = root.as_ref().clone();
            let mut members = Vec::new();
            for access in access_chain {
                match access {
                    AccessExpr::Dot(Expr::Function(function)) => {
                        // Of `s.a.f()` the parser makes the function `a.f` of `s`.
                        let (name, path) = function.name.0.split_last()?;
                        for part in path {
                            let part = Expr::Identifier(part.as_ident()?.clone());
                            members.push(AccessExpr::Dot(part));
                        }
                        let name = name.as_ident()?.clone();
                        of = with_first(function, name, Some(member(of, &mut members)))?;
                    }
                    other => members.push(other.clone()),
                }
            }
            let is_call =
                |access: &AccessExpr| matches!(access, AccessExpr::Dot(Expr::Function(_)));
            access_chain.iter().any(is_call).then(|| member(of, &mut members))
        }
        _ => None,
    }
}

/// Schemas of the built-in functions in PostgreSQL and DuckDB.
const SCHEMAS: [&str; 3] = ["main", "pg_catalog", "system"];

fn member(of: Expr, members: &mut Vec<AccessExpr>) -> Expr {
    match std::mem::take(members) {
        none if none.is_empty() => of,
        access_chain => Expr::CompoundFieldAccess { root: Box::new(of), access_chain },
    }
}

/// The call of a function by its name, with one more argument before the others.
fn with_first(function: &Function, name: Ident, of: Option<Expr>) -> Option<Expr> {
    let mut function = function.clone();
    function.name = ObjectName::from(vec![name]);
    let FunctionArguments::List(list) = &mut function.args else { return None };
    if let Some(of) = of {
        list.args.insert(0, FunctionArg::Unnamed(FunctionArgExpr::Expr(of)));
    }
    Some(Expr::Function(function))
}

/// `struct_pack(a := 1)` as `named_struct('a', 1)`.
pub(super) fn struct_pack(function: &Function) -> Option<Expr> {
    Some(call("named_struct", named_parts(function, 0)?))
}

/// `struct_insert(s, a := 1)` as `struct_insert(s, 'a', 1)`.
pub(super) fn struct_insert(name: &str, function: &Function) -> Option<Expr> {
    if name != "struct_insert" {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(of))) = list.args.first() else {
        return None;
    };
    let mut parts = named_parts(function, 1)?;
    parts.insert(0, of.clone());
    Some(call("struct_insert", parts))
}

/// The names and values of named arguments, behind some that have no names.
fn named_parts(function: &Function, unnamed: usize) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let mut parts = Vec::new();
    for arg in list.args.iter().skip(unnamed) {
        let FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } = arg else {
            return None;
        };
        parts.extend([quoted(&name.value), value.clone()]);
    }
    Some(parts)
}

pub(super) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let nested = |side| Box::new(Expr::Nested(Box::new(side)));
    Expr::BinaryOp { left: nested(left), op, right: nested(right) }
}
