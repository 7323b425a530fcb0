//! The columns of FROM that a call of `COLUMNS(…)` names.

use datafusion::sql::sqlparser::ast::{
    Array, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};
use regex::Regex;

use super::column_conditions::holds;
use super::columns::Named;
use super::select::left_out;

/// The argument of a call that has one.
pub(super) fn only_argument(function: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => Some(expr),
        _ => None,
    }
}

/// The columns that a call names.
pub(super) fn wanted<'a>(function: &Function, known: &'a [Named]) -> Option<Vec<&'a Named>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let [FunctionArg::Unnamed(of)] = list.args.as_slice() else { return None };
    let named = |is: &dyn Fn(&str) -> bool| known.iter().filter(|known| is(&known.name)).collect();
    match of {
        FunctionArgExpr::Wildcard => Some(named(&|_| true)),
        FunctionArgExpr::WildcardWithOptions(options) => {
            let left_out = left_out(options);
            Some(named(&|name| !left_out.iter().any(|other| other == name)))
        }
        FunctionArgExpr::Expr(Expr::Value(value)) => {
            let Value::SingleQuotedString(pattern) = &value.value else { return None };
            let pattern = Regex::new(pattern).ok()?;
            Some(named(&|name| pattern.is_match(name)))
        }
        FunctionArgExpr::Expr(Expr::Lambda(lambda)) => {
            let holds = known.iter().map(|column| holds(lambda, &column.name));
            let holds: Vec<bool> = holds.collect::<Option<_>>()?;
            let each = known.iter().zip(holds);
            Some(each.filter(|(_, holds)| *holds).map(|(column, _)| column).collect())
        }
        FunctionArgExpr::Expr(Expr::Array(Array { elem, .. })) => {
            let text = |expr: &Expr| match expr {
                Expr::Value(value) => match &value.value {
                    Value::SingleQuotedString(text) => Some(text.clone()),
                    _ => None,
                },
                _ => None,
            };
            let names: Vec<String> = elem.iter().map(text).collect::<Option<_>>()?;
            let column = |name: &String| known.iter().find(|column| column.name == *name);
            names.iter().map(column).collect()
        }
        _ => None,
    }
}
