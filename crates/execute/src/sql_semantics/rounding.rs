//! The nearest whole number, to which a number is rounded before it is cast to an integer.
//!
//! DataFusion's casts leave out what is behind the point. As in PostgreSQL, a decimal that is in the
//! middle is rounded away from zero, a double to the even number.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, Float32Type,
    Float64Type,
};
use datafusion::error::Result;

use super::quotients::scale;
use super::unary_function::ColumnFunction;

/// The name of the function, which is hidden from SQL.
const NAME: &str = "checked_nearest";

/// Returns the function that rounds to the nearest whole number.
pub(super) fn function() -> ColumnFunction {
    let field = |of: &FieldRef| {
        Arc::new(Field::new(NAME, whole(of.data_type()), of.is_nullable())) as FieldRef
    };
    ColumnFunction::new(NAME, true, field, nearest)
}

/// Whether a cast between two types would leave out what is behind the point.
pub(super) fn leaves_out(from: &DataType, to: &DataType) -> bool {
    let has_point = match from {
        DataType::Float32 | DataType::Float64 => true,
        other => scale(other).is_some_and(|scale| scale > 0),
    };
    has_point && to.is_integer()
}

/// Returns the type of the whole number. It may have a digit more than the number has before the
/// point.
fn whole(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal256(..) => DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0),
        other if other.is_decimal() => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
        other => other.clone(),
    }
}

fn nearest(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        DataType::Float32 => Arc::new(
            values.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even),
        ),
        DataType::Float64 => Arc::new(
            values.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even),
        ),
        // A cast to a decimal of a smaller scale rounds.
        other => cast(values, &whole(other))?,
    })
}
