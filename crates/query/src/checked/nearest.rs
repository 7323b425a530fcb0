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
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

/// The name of the function, which is hidden from SQL.
const NAME: &str = "checked_nearest";

/// The nearest whole number.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Nearest {
    signature: Signature,
}

impl Default for Nearest {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

/// Whether a cast between two types would leave out what is behind the point.
pub(super) fn leaves_out(from: &DataType, to: &DataType) -> bool {
    let has_point = match from {
        DataType::Float32 | DataType::Float64 => true,
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale > 0,
        _ => false,
    };
    has_point && to.is_integer()
}

impl ScalarUDFImpl for Nearest {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(ToString::to_string).collect())
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(|arg| arg.schema_name().to_string()).collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [only] => Ok(whole(only)),
            _ => plan_err!("{NAME} takes one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [only] => Ok(Arc::new(Field::new(NAME, whole(only.data_type()), only.is_nullable()))),
            _ => plan_err!("{NAME} takes one argument"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let rounded = nearest(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&rounded, 0)?))
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(nearest(values)?)),
            _ => plan_err!("{NAME} takes one argument"),
        }
    }
}

/// The type of the whole number: it may have a digit more than those before the point.
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
