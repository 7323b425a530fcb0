//! Regular expressions in functions.

use datafusion::sql::sqlparser::ast::Expr;

use super::text;
use crate::sql::semantics::quoted;

/// A pattern in quotes as one of the whole text.
pub(super) fn of_whole_text(pattern: &Expr) -> Option<Expr> {
    Some(quoted(&format!("^(?:{})$", text(pattern)?)))
}
