//! UNPIVOT of columns that `COLUMNS(…)` names, which are known only with FROM: the lists of their names
//! and values, and the items of the columns that are left.

use datafusion::sql::sqlparser::ast::{Array, Expr, Function, Ident, SelectItem};

use super::columns::Named;
use super::columns_selection::{only_argument, wanted};
use crate::sql::semantics::{call, quoted};

/// The items of the other columns. No function has this name.
pub(crate) const LEFT: &str = "__unpivot_left";

/// The unnested names of the columns.
pub(crate) const NAMES: &str = "__unpivot_names";

/// The unnested values of the columns.
pub(crate) const VALUES: &str = "__unpivot_values";

/// The items that an item of UNPIVOT stands for. `None` if it is another one.
pub(super) fn written(item: &SelectItem, known: &[Named]) -> Option<Vec<SelectItem>> {
    let (expr, alias) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, None),
        SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias)),
        _ => return None,
    };
    let (part, function) = part_of(expr)?;
    let wanted = wanted(function, known)?;
    if part == LEFT {
        let is_left = |column: &&Named| !wanted.iter().any(|other| other.expr == column.expr);
        let left = known.iter().filter(is_left).map(|column| SelectItem::ExprWithAlias {
            expr: column.expr.clone(),
            alias: Ident::with_quote('"', column.name.clone()),
        });
        return Some(left.collect());
    }
    let elem = wanted.iter().map(|column| match part == NAMES {
        true => quoted(&column.name),
        false => column.expr.clone(),
    });
    let list = Expr::Array(Array { elem: elem.collect(), named: false });
    let expr = call("unnest", vec![list]);
    Some(vec![SelectItem::ExprWithAlias { expr, alias: alias?.clone() }])
}

/// The part of UNPIVOT that a call is, and the columns that it is of.
fn part_of(expr: &Expr) -> Option<(&'static str, &Function)> {
    let Expr::Function(function) = expr else { return None };
    let name = function.name.to_string();
    let part = [LEFT, NAMES, VALUES].into_iter().find(|part| *part == name)?;
    match only_argument(function)? {
        Expr::Function(columns) => Some((part, columns)),
        _ => None,
    }
}
