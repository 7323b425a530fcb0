//! Estimates of a column from the statistics of its files.

use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue};

/// Bytes of a string or of a nested value, unless the statistics know better.
const VARIABLE_WIDTH: f64 = 32.0;

/// Bytes of a string in memory besides its characters.
const VIEW_WIDTH: f64 = 16.0;

/// A column of an operator's output.
#[derive(Clone, Debug)]
pub(crate) struct ColumnEstimate {
    /// Number of distinct values.
    pub(crate) distinct: f64,
    /// Smallest and largest value of numbers and times.
    pub(crate) range: Option<(f64, f64)>,
    /// Part of the rows that is null.
    pub(crate) nulls: f64,
    /// Bytes of a value in memory.
    pub(crate) width: f64,
    /// True for the result of an aggregate function.
    pub(crate) is_computed: bool,
}

impl ColumnEstimate {
    /// A column whose values may all be different.
    pub(crate) fn unknown(rows: f64, width: f64) -> Self {
        Self { distinct: rows, range: None, nulls: 0.0, width, is_computed: false }
    }

    /// Estimates a column of a file scan with `rows` rows.
    pub(crate) fn of_scan(found: &ColumnStatistics, data_type: &DataType, rows: f64) -> Self {
        let limits = found.min_value.get_value().zip(found.max_value.get_value());
        let range = limits.and_then(|(least, most)| Some((number(least)?, number(most)?)));
        let of_range = range.and_then(|(least, most)| {
            step(data_type).map(|step| ((most - least) / step + 1.0).max(1.0))
        });
        let counted = found.distinct_count.get_value().map(|count| *count as f64);
        let distinct = [counted, of_range].into_iter().flatten().fold(rows, f64::min);
        let nulls = match found.null_count {
            Precision::Exact(nulls) | Precision::Inexact(nulls) => nulls as f64 / rows.max(1.0),
            Precision::Absent => 0.0,
        };
        let width = match found.byte_size.get_value() {
            // What the values take in the files. Those of a dictionary share their bytes here too.
            Some(bytes) if data_type.primitive_width().is_none() && rows > 0.0 => {
                VIEW_WIDTH + *bytes as f64 / rows
            }
            _ => width(data_type),
        };
        Self { distinct, range, nulls: nulls.min(1.0), width, is_computed: false }
    }
}

/// Bytes of a value in memory.
pub(crate) fn width(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Boolean | DataType::Null => 1.0,
        other => other.primitive_width().map_or(VARIABLE_WIDTH, |bytes| bytes as f64),
    }
}

/// The distance between neighbouring values of a type that has few enough of them to tell.
fn step(data_type: &DataType) -> Option<f64> {
    match data_type {
        DataType::Decimal128(_, scale) => Some(10_f64.powi(-i32::from(*scale))),
        DataType::Date32 => Some(1.0),
        other => other.is_integer().then_some(1.0),
    }
}

/// A value as a number. Dates are days.
pub(crate) fn number(value: &ScalarValue) -> Option<f64> {
    Some(match value {
        ScalarValue::Int8(value) => f64::from((*value)?),
        ScalarValue::Int16(value) => f64::from((*value)?),
        ScalarValue::Int32(value) | ScalarValue::Date32(value) => f64::from((*value)?),
        ScalarValue::Int64(value) => (*value)? as f64,
        ScalarValue::UInt8(value) => f64::from((*value)?),
        ScalarValue::UInt16(value) => f64::from((*value)?),
        ScalarValue::UInt32(value) => f64::from((*value)?),
        ScalarValue::UInt64(value) => (*value)? as f64,
        ScalarValue::Float32(value) => f64::from((*value)?),
        ScalarValue::Float64(value) => (*value)?,
        ScalarValue::Decimal128(value, _, scale) => {
            (*value)? as f64 * 10_f64.powi(-i32::from(*scale))
        }
        ScalarValue::TimestampSecond(value, _) => (*value)? as f64 * 1e9,
        ScalarValue::TimestampMillisecond(value, _) => (*value)? as f64 * 1e6,
        ScalarValue::TimestampMicrosecond(value, _) => (*value)? as f64 * 1e3,
        ScalarValue::TimestampNanosecond(value, _) => (*value)? as f64,
        _ => return None,
    })
    .filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_of_texts_is_that_of_the_files() {
        let of = |bytes, data_type: &DataType| {
            let found = ColumnStatistics { byte_size: bytes, ..ColumnStatistics::new_unknown() };
            ColumnEstimate::of_scan(&found, data_type, 1000.0).width
        };
        let text = DataType::Utf8View;
        assert!((of(Precision::Inexact(78_000), &text) - 94.0).abs() < 1e-9);
        assert!((of(Precision::Absent, &text) - VARIABLE_WIDTH).abs() < 1e-9);
        assert!((of(Precision::Exact(8_000), &DataType::Int64) - 8.0).abs() < 1e-9);
        let none = ColumnStatistics::new_unknown().with_byte_size(Precision::Exact(0));
        assert!((ColumnEstimate::of_scan(&none, &text, 0.0).width - VARIABLE_WIDTH).abs() < 1e-9);
    }
}
