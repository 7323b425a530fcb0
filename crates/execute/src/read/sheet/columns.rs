//! Builds the columns of a batch from the values of cells.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Date32Builder, Float64Builder, StringViewBuilder,
    Time64MicrosecondBuilder, TimestampMicrosecondBuilder, new_null_array,
};
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{NaiveDate, NaiveTime, Timelike};

use super::value::CellValue;

/// The values of a column.
pub(super) enum SheetColumn {
    Number(Float64Builder),
    Bool(BooleanBuilder),
    Date(Date32Builder),
    Moment(TimestampMicrosecondBuilder),
    Time(Time64MicrosecondBuilder),
    Text(StringViewBuilder),
    /// A column of a type for which no sheet gives values, with its number of rows.
    Null(DataType, usize),
}

impl SheetColumn {
    /// An empty column of a type.
    pub(super) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Float64 => Self::Number(Float64Builder::new()),
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Date32 => Self::Date(Date32Builder::new()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                Self::Moment(TimestampMicrosecondBuilder::new())
            }
            DataType::Time64(TimeUnit::Microsecond) => Self::Time(Time64MicrosecondBuilder::new()),
            DataType::Utf8View => Self::Text(StringViewBuilder::new()),
            other => Self::Null(other.clone(), 0),
        }
    }

    /// Adds a value, or null. False if the value does not have the column's type.
    pub(super) fn add(&mut self, value: Option<&CellValue<'_>>) -> bool {
        match (self, value) {
            (Self::Number(column), None) => column.append_null(),
            (Self::Number(column), Some(CellValue::Number(number))) => column.append_value(*number),
            (Self::Bool(column), None) => column.append_null(),
            (Self::Bool(column), Some(CellValue::Bool(truth))) => column.append_value(*truth),
            (Self::Date(column), None) => column.append_null(),
            (Self::Date(column), Some(CellValue::Date(date))) => column.append_value(days(*date)),
            (Self::Moment(column), None) => column.append_null(),
            (Self::Moment(column), Some(CellValue::Moment(moment))) => {
                column.append_value(moment.and_utc().timestamp_micros());
            }
            (Self::Moment(column), Some(CellValue::Date(date))) => {
                column.append_value(i64::from(days(*date)) * 86_400_000_000);
            }
            (Self::Time(column), None) => column.append_null(),
            (Self::Time(column), Some(CellValue::Time(time))) => column.append_value(micros(*time)),
            (Self::Text(column), None) => column.append_null(),
            (Self::Text(column), Some(value)) => column.append_value(value.text()),
            (Self::Null(_, rows), None) => *rows += 1,
            _ => return false,
        }
        true
    }

    /// Takes the values so far.
    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Number(column) => Arc::new(column.finish()),
            Self::Bool(column) => Arc::new(column.finish()),
            Self::Date(column) => Arc::new(column.finish()),
            Self::Moment(column) => Arc::new(column.finish()),
            Self::Time(column) => Arc::new(column.finish()),
            Self::Text(column) => Arc::new(column.finish()),
            Self::Null(data_type, rows) => new_null_array(data_type, std::mem::take(rows)),
        }
    }
}

fn days(date: NaiveDate) -> i32 {
    date.signed_duration_since(NaiveDate::default()).num_days() as i32
}

fn micros(time: NaiveTime) -> i64 {
    i64::from(time.num_seconds_from_midnight()) * 1_000_000 + i64::from(time.nanosecond() / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_another_type_are_refused() {
        let date = NaiveDate::from_ymd_opt(1969, 12, 31).unwrap();
        let mut moments = SheetColumn::of(&DataType::Timestamp(TimeUnit::Microsecond, None));
        assert!(moments.add(Some(&CellValue::Date(date))) && moments.add(None));
        assert!(!moments.add(Some(&CellValue::Number(1.0))));
        let values = moments.finish();
        assert_eq!((values.len(), values.null_count()), (2, 1));
        let mut texts = SheetColumn::of(&DataType::Utf8View);
        assert!(
            texts.add(Some(&CellValue::Number(1.5))) && texts.add(Some(&CellValue::Date(date)))
        );
        assert!(texts.finish().len() == 2 && texts.finish().is_empty());
        assert_eq!(days(date), -1);
    }
}
