//! `typeof`, `bit_count`, `make_timestamp`, and intervals of a number of days, hours and the like.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, IntervalMonthDayNanoArray, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalUnit, TimeUnit, UInt64Type,
};
use chrono::NaiveDate;
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};

use super::column_function::{Plain, wrong};
use crate::sql_semantics::sql_name;

pub(super) fn all() -> Vec<Plain> {
    vec![
        Plain::new("typeof", (1, 1), |_, _| Ok(DataType::Utf8), |columns, _| type_of(columns)),
        Plain::new("bit_count", (1, 1), bits_type, |columns, _| bits(&columns[0])),
        Plain::new("make_timestamp", (1, 6), timestamp_type, |columns, _| timestamps(columns)),
        Plain::new("to_years", (1, 1), interval, |columns, _| months(&columns[0], 12)),
        Plain::new("to_months", (1, 1), interval, |columns, _| months(&columns[0], 1)),
        Plain::new("to_weeks", (1, 1), interval, |columns, _| days(&columns[0], 7)),
        Plain::new("to_days", (1, 1), interval, |columns, _| days(&columns[0], 1)),
        Plain::new("to_hours", (1, 1), interval, |columns, _| parts(&columns[0], 3600e9)),
        Plain::new("to_minutes", (1, 1), interval, |columns, _| parts(&columns[0], 60e9)),
        Plain::new("to_seconds", (1, 1), interval, |columns, _| parts(&columns[0], 1e9)),
        Plain::new("to_milliseconds", (1, 1), interval, |columns, _| parts(&columns[0], 1e6)),
        Plain::new("to_microseconds", (1, 1), interval, |columns, _| parts(&columns[0], 1e3)),
    ]
}

fn type_of(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let name = sql_name(columns[0].data_type());
    let names = std::iter::repeat_n(name, columns[0].len());
    Ok(Arc::new(StringArray::from_iter_values(names)))
}

fn bits_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [of] if of.is_integer() || of.is_null() => Ok(DataType::Int64),
        _ => plan_err!("`bit_count` takes an integer"),
    }
}

/// Counts the bits that are set in numbers, in their own type: a negative number is counted in
/// two's complement.
fn bits(column: &ArrayRef) -> Result<ArrayRef> {
    let width = column.data_type().primitive_width().unwrap_or(8) * 8;
    let mask = u64::MAX >> (64 - width.clamp(1, 64));
    let count = |bits: u64| i64::from((bits & mask).count_ones());
    let counts: Int64Array = if column.data_type() == &DataType::UInt64 {
        column.as_primitive::<UInt64Type>().unary(count)
    } else {
        let signed = cast(column, &DataType::Int64)?;
        signed.as_primitive::<Int64Type>().unary(|value| count(value.cast_unsigned()))
    };
    Ok(Arc::new(counts))
}

fn timestamp_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let is_number = |of: &DataType| of.is_numeric() || of.is_null();
    match types.len() {
        1 | 6 if types.iter().all(is_number) => {
            Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        _ => plan_err!(
            "`make_timestamp` takes year, month, day, hour, minute and second, or microseconds \
             since 1970"
        ),
    }
}

fn timestamps(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let [fields @ .., seconds] = columns else { return plan_err!("a time has parts") };
    let whole = |column: &ArrayRef| cast(column, &DataType::Int64);
    if fields.is_empty() {
        let micros = whole(seconds)?;
        let micros = micros.as_primitive::<Int64Type>();
        let times =
            TimestampMicrosecondArray::new(micros.values().clone(), micros.nulls().cloned());
        return Ok(Arc::new(times));
    }
    let fields = fields.iter().map(whole).collect::<Result<Vec<_>, _>>()?;
    let fields: Vec<&Int64Array> =
        fields.iter().map(|field| field.as_primitive::<Int64Type>()).collect();
    let seconds = cast(seconds, &DataType::Float64)?;
    let seconds = seconds.as_primitive::<Float64Type>();
    let of_row = |row: usize| -> Result<Option<i64>> {
        if seconds.is_null(row) || fields.iter().any(|field| field.is_null(row)) {
            return Ok(None);
        }
        let values: Vec<i64> = fields.iter().map(|field| field.value(row)).collect();
        let seconds = seconds.value(row);
        match micros(&values, seconds) {
            Some(micros) => Ok(Some(micros)),
            None => Err(no_time(&values, seconds)),
        }
    };
    let times = (0..seconds.len()).map(of_row).collect::<Result<TimestampMicrosecondArray>>()?;
    Ok(Arc::new(times))
}

fn micros(fields: &[i64], seconds: f64) -> Option<i64> {
    let [year, month, day, hour, minute] = *fields else { return None };
    let of_day = |value: i64, end: i64| (0..end).contains(&value).then_some(value);
    let month = u32::try_from(month).ok()?;
    let day = u32::try_from(day).ok()?;
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    let minutes = of_day(hour, 24)? * 60 + of_day(minute, 60)?;
    // As PostgreSQL, 60 seconds are the next minute.
    let seconds = (0.0..=60.0).contains(&seconds).then_some((seconds * 1e6).round() as i64)?;
    let midnight = date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_micros();
    midnight.checked_add(minutes * 60_000_000)?.checked_add(seconds)
}

fn no_time(fields: &[i64], seconds: f64) -> DataFusionError {
    let parts: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let message = format!("there is no time of the parts {}, {seconds}", parts.join(", "));
    wrong(message, "they are year, month, day, hour, minute and second")
}

fn interval(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match types {
        [of] if of.is_numeric() || of.is_null() => {
            Ok(DataType::Interval(IntervalUnit::MonthDayNano))
        }
        _ => plan_err!("the parts of an interval are numbers"),
    }
}

fn months(column: &ArrayRef, each: i32) -> Result<ArrayRef> {
    intervals(column, &|count| {
        Some(IntervalMonthDayNano::new(whole(count)?.checked_mul(each)?, 0, 0))
    })
}

fn days(column: &ArrayRef, each: i32) -> Result<ArrayRef> {
    intervals(column, &|count| {
        Some(IntervalMonthDayNano::new(0, whole(count)?.checked_mul(each)?, 0))
    })
}

fn whole(count: f64) -> Option<i32> {
    let is_whole = count.fract() == 0.0 && count.abs() <= f64::from(i32::MAX);
    is_whole.then_some(count as i32)
}

fn parts(column: &ArrayRef, nanoseconds: f64) -> Result<ArrayRef> {
    if column.data_type().is_signed_integer() {
        return whole_parts(column, nanoseconds as i64);
    }
    intervals(column, &|count| {
        let all = (count * nanoseconds).round();
        let fits = all.abs() < i64::MAX as f64;
        fits.then(|| IntervalMonthDayNano::new(0, 0, all as i64))
    })
}

/// Computes intervals from whole numbers of a unit of `nanoseconds`, without doubles: a double has
/// 16 digits, and the time since 1970 in nanoseconds 19.
fn whole_parts(column: &ArrayRef, nanoseconds: i64) -> Result<ArrayRef> {
    let counts = cast(column, &DataType::Int64)?;
    let one = |count: Option<i64>| match count {
        None => Ok(None),
        Some(count) => match count.checked_mul(nanoseconds) {
            Some(all) => Ok(Some(IntervalMonthDayNano::new(0, 0, all))),
            None => Err(no_interval(&count.to_string())),
        },
    };
    let counts = counts.as_primitive::<Int64Type>().iter();
    Ok(Arc::new(counts.map(one).collect::<Result<IntervalMonthDayNanoArray>>()?))
}

fn no_interval(count: &str) -> DataFusionError {
    let message = format!("there is no interval of {count} such parts");
    wrong(message, "years, months, weeks and days are whole numbers")
}

fn intervals(
    column: &ArrayRef,
    of: &dyn Fn(f64) -> Option<IntervalMonthDayNano>,
) -> Result<ArrayRef> {
    let counts = cast(column, &DataType::Float64)?;
    let one = |count: Option<f64>| match count {
        None => Ok(None),
        Some(count) => of(count).map(Some).ok_or_else(|| no_interval(&count.to_string())),
    };
    let counts = counts.as_primitive::<Float64Type>().iter();
    Ok(Arc::new(counts.map(one).collect::<Result<IntervalMonthDayNanoArray>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_day_of_the_calendar() {
        assert_eq!(micros(&[1970, 1, 1, 0, 0], 1.5), Some(1_500_000));
        assert_eq!(micros(&[1969, 12, 31, 23, 59], 60.0), Some(0));
        for fields in [[2023, 2, 29, 0, 0], [2024, 1, 1, 24, 0], [2024, 1, 1, 0, -1]] {
            assert_eq!(micros(&fields, 0.0), None);
        }
        assert_eq!(micros(&[2024, 1, 1, 0, 0], 61.0), None);
    }
}
