//! `age(to, from)`: the months, days and parts of a day between two times, as in PostgreSQL.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use crate::sql_functions::column_function::{Plain, wrong};

pub(crate) fn all() -> Vec<Plain> {
    vec![Plain::new("age", (2, 2), returns, |columns, _| ages(columns))]
}

fn returns(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let is_time =
        |of: &DataType| matches!(of, DataType::Date32 | DataType::Timestamp(..) | DataType::Null);
    match types.iter().all(is_time) {
        true => Ok(DataType::Interval(IntervalUnit::MonthDayNano)),
        false => plan_err!("`age` takes two times: cast texts with ::timestamp"),
    }
}

fn ages(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let micros =
        |column: &ArrayRef| cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None));
    let to = micros(&columns[0])?;
    let to = to.as_primitive::<TimestampMicrosecondType>();
    let from = micros(&columns[1])?;
    let from = from.as_primitive::<TimestampMicrosecondType>();
    let one = |pair| {
        let (Some(to), Some(from)) = pair else { return Ok(None) };
        let time = |micros| DateTime::from_timestamp_micros(micros).map(|time| time.naive_utc());
        let age = time(to).zip(time(from)).and_then(|(to, from)| age(to, from));
        age.map(Some).ok_or_else(|| {
            wrong("a time is too far for `age`".to_owned(), "use date_diff(unit, from, to)")
        })
    };
    Ok(Arc::new(
        to.iter().zip(from.iter()).map(one).collect::<Result<IntervalMonthDayNanoArray>>()?,
    ))
}

fn age(to: NaiveDateTime, from: NaiveDateTime) -> Option<IntervalMonthDayNano> {
    let (later, earlier) = if to < from { (from, to) } else { (to, from) };
    let months_of = |time: NaiveDateTime| i64::from(time.year()) * 12 + i64::from(time.month0());
    let mut months = months_of(later) - months_of(earlier);
    let mut days = i64::from(later.day()) - i64::from(earlier.day());
    let mut rest = later.time().signed_duration_since(earlier.time()).num_nanoseconds()?;
    if rest < 0 {
        rest += 86_400_000_000_000;
        days -= 1;
    }
    if days < 0 {
        // PostgreSQL borrows the month of the earlier time.
        days += days_of_month(earlier)?;
        months -= 1;
    }
    let sign = if to < from { -1 } else { 1 };
    let part = |value: i64| i32::try_from(value * sign).ok();
    Some(IntervalMonthDayNano::new(part(months)?, part(days)?, rest * sign))
}

fn days_of_month(time: NaiveDateTime) -> Option<i64> {
    let year = time.year();
    let month = time.month();
    let next = match month {
        12 => NaiveDate::from_ymd_opt(year.checked_add(1)?, 1, 1)?,
        _ => NaiveDate::from_ymd_opt(year, month + 1, 1)?,
    };
    Some(i64::from(next.checked_sub_days(Days::new(1))?.day()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_months_days_and_parts() {
        let time = |text: &str| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").unwrap();
        // PostgreSQL's answers.
        for (to, from, expected) in [
            ("2001-04-10 00:00:00", "1957-06-13 00:00:00", (525, 27, 0)),
            ("2024-03-01 00:00:00", "2024-01-31 00:00:00", (1, 1, 0)),
            ("2024-01-31 00:00:00", "2024-03-01 00:00:00", (-1, -1, 0)),
            ("2024-01-02 00:00:00", "2024-01-01 23:00:00", (0, 0, 3_600_000_000_000)),
        ] {
            let found = age(time(to), time(from)).unwrap();
            let (months, days, nanoseconds) = expected;
            assert_eq!(found, IntervalMonthDayNano::new(months, days, nanoseconds), "{to}, {from}");
        }
    }
}
