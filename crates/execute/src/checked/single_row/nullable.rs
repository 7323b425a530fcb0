//! The identity whose result is nullable.

use std::sync::Arc;

use arrow::datatypes::FieldRef;

use crate::checked::column::ColumnFunction;

/// Returns the function.
pub(in crate::checked) fn function() -> ColumnFunction {
    let returns = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
    ColumnFunction::new("checked_nullable", true, returns, |values| Ok(Arc::clone(values)))
}
