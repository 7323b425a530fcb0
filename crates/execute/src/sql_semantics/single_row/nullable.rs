//! The identity whose result is nullable.

use std::sync::Arc;

use arrow::datatypes::FieldRef;

use crate::sql_semantics::unary_function::ColumnFunction;

/// Returns the function.
pub(in crate::sql_semantics) fn function() -> ColumnFunction {
    let returns = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
    ColumnFunction::new("checked_nullable", true, returns, |values| Ok(Arc::clone(values)))
}
