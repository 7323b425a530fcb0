//! The length of an interval, by which intervals are compared: a month has 30 days, a day 24 hours,
//! as in PostgreSQL and DuckDB.
//!
//! DataFusion compares months, then days, then the time: the two days between two timestamps, which
//! are 48 hours, would be less than `interval '1 day'`.

mod groups;
mod refusal;
mod rule;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::error::Result;

use super::unary_function::ColumnFunction;
pub use rule::{CompareIntervals, OrderWindows};

/// The name of the function, which is hidden from SQL.
const NAME: &str = "checked_span";
const NANOS_OF_DAY: i128 = 86_400_000_000_000;
const DAYS_OF_MONTH: i128 = 30;
const LENGTH: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// The length in nanoseconds.
pub(super) fn function() -> ColumnFunction {
    let field = |_: &FieldRef| Arc::new(Field::new(NAME, LENGTH, true)) as FieldRef;
    ColumnFunction::new(NAME, false, field, lengths)
}

fn lengths(values: &ArrayRef) -> Result<ArrayRef> {
    let wide = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let lengths: Decimal128Array =
        wide.as_primitive::<IntervalMonthDayNanoType>().unary::<_, Decimal128Type>(length);
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
