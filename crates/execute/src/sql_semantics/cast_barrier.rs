//! A cast that the optimiser leaves as it is.
//!
//! DataFusion compares a column, and not its cast, with a constant, where the constant has a value in
//! the column's type. A cast to a decimal with fewer digits behind the point gives several values the
//! same result, so that `x::decimal(9, 1) = 1.2` would no longer hold for 1.23 (datafusion 23095).

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::quotients::scale;
use super::unary_function::ColumnFunction;

/// Returns the function, which is the identity.
pub(super) fn function() -> ColumnFunction {
    let value = |values: &_| Ok(Arc::clone(values));
    ColumnFunction::new("checked_barrier", false, Arc::clone, value)
}

/// Whether several values of one type become the same decimal of another.
pub(super) fn merges_decimals(from: &DataType, to: &DataType) -> bool {
    scale(from).zip(scale(to)).is_some_and(|(from, to)| from > to)
}
