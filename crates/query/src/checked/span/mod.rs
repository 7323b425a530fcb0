//! The length of an interval, by which intervals are compared: a month has 30 days, a day 24 hours,
//! as in PostgreSQL and DuckDB.
//!
//! DataFusion compares months, then days, then the time: the two days between two timestamps, which
//! are 48 hours, would be less than `interval '1 day'`.

mod rule;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DurationSecondType, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

pub(crate) use rule::{CompareIntervals, OrderWindows};

/// The name of the function, which is hidden from SQL.
const NAME: &str = "checked_span";
const NANOS_OF_DAY: i128 = 86_400_000_000_000;
const DAYS_OF_MONTH: i128 = 30;
const LENGTH: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// The length in nanoseconds.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Span {
    signature: Signature,
}

impl Default for Span {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Span {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.iter().map(ToString::to_string).collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(LENGTH)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let lengths = lengths(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?))
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(lengths(values)?)),
            _ => plan_err!("{NAME} takes one argument"),
        }
    }
}

fn lengths(values: &ArrayRef) -> Result<ArrayRef> {
    let lengths: Decimal128Array = match values.data_type() {
        DataType::Duration(TimeUnit::Second) => {
            let seconds = values.as_primitive::<DurationSecondType>();
            seconds.unary::<_, Decimal128Type>(|of| i128::from(of) * 1_000_000_000)
        }
        _ => {
            let wide = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            wide.as_primitive::<IntervalMonthDayNanoType>().unary::<_, Decimal128Type>(length)
        }
    };
    Ok(Arc::new(lengths.with_data_type(LENGTH)))
}

fn length(of: IntervalMonthDayNano) -> i128 {
    let days = i128::from(of.months) * DAYS_OF_MONTH + i128::from(of.days);
    days * NANOS_OF_DAY + i128::from(of.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_totals() {
        let of = |months, days, nanos| length(IntervalMonthDayNano::new(months, days, nanos));
        assert_eq!(of(0, 1, 0), of(0, 0, 86_400_000_000_000));
        assert_eq!(of(1, 0, 0), of(0, 30, 0));
        assert_eq!(of(1, -30, 0), 0);
        assert!(of(i32::MAX, i32::MAX, i64::MAX) > of(i32::MAX, i32::MAX, 0));
        assert!(of(i32::MIN, i32::MIN, i64::MIN) < of(i32::MIN, 0, 0));
    }
}
