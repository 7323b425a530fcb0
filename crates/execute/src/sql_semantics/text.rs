//! The text of a time or an interval, as PostgreSQL writes it.
//!
//! DataFusion's casts write `2024-01-31T10:00:00.500`, so that `x::varchar LIKE '2024-01-31 10%'`
//! finds nothing. Here the text is `2024-01-31 10:00:00.5`, with `+01` behind it if there is a zone.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, DurationMicrosecondType, Field, FieldRef, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use chrono::{DateTime, Datelike, NaiveDateTime, Offset, TimeZone, Timelike};
use datafusion::error::Result;

use super::unary_function::ColumnFunction;

/// The name of the function, which is hidden from SQL.
pub(super) const NAME: &str = "checked_text";
const NANOS_OF_SECOND: i64 = 1_000_000_000;

/// Returns the function that gives the text of a value.
pub(super) fn function() -> ColumnFunction {
    let field = |_: &FieldRef| Arc::new(Field::new(NAME, DataType::Utf8, true)) as FieldRef;
    ColumnFunction::new(NAME, true, field, texts)
}

/// Whether a cast gives the text of a time or an interval.
pub(super) fn is_of_time(from: &DataType, to: &DataType) -> bool {
    let is_time = matches!(
        from,
        DataType::Timestamp(..)
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Interval(_)
            | DataType::Duration(_)
    );
    is_time && to.is_string()
}

/// The texts of a column of any type, as its cast gives them.
pub(crate) fn text_of(values: &ArrayRef) -> Result<ArrayRef> {
    match is_of_time(values.data_type(), &DataType::Utf8) {
        true => texts(values),
        false => Ok(cast(values, &DataType::Utf8)?),
    }
}

fn texts(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Timestamp(unit, None) => {
            numbers(values, |value| Some(Moment(local(*unit, value)?).to_string()))
        }
        DataType::Timestamp(unit, Some(zone)) => {
            let zone: Tz = zone.parse()?;
            numbers(values, |value| {
                let at = zone.from_utc_datetime(&local(*unit, value)?);
                let seconds = at.offset().fix().local_minus_utc();
                Some(format!("{}{}", Moment(at.naive_local()), ZoneOffset(seconds)))
            })
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let nanos = cast(values, &DataType::Time64(TimeUnit::Nanosecond))?;
            numbers(&nanos, |value| Some(TimeText(value).to_string()))
        }
        DataType::Interval(_) => {
            let wide = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let wide = wide.as_primitive::<IntervalMonthDayNanoType>().iter();
            let text = |value| Span(value).to_string();
            Ok(Arc::new(wide.map(|value| value.map(text)).collect::<StringArray>()))
        }
        _ => {
            let micros = cast(values, &DataType::Duration(TimeUnit::Microsecond))?;
            let micros = micros.as_primitive::<DurationMicrosecondType>().iter();
            Ok(Arc::new(micros.map(|value| value.map(of_duration)).collect::<StringArray>()))
        }
    }
}

/// Returns the texts of values that are stored as whole numbers. A value without a date, for which
/// `text` gives `None`, has DataFusion's text.
fn numbers(values: &ArrayRef, text: impl Fn(i64) -> Option<String>) -> Result<ArrayRef> {
    let whole = cast(values, &DataType::Int64)?;
    let whole = whole.as_primitive::<Int64Type>();
    let of_row = |row: usize| match whole.is_valid(row) {
        false => Ok(None),
        true => match text(whole.value(row)) {
            Some(text) => Ok(Some(text)),
            None => {
                let other = cast(&values.slice(row, 1), &DataType::Utf8)?;
                Ok(other.is_valid(0).then(|| other.as_string::<i32>().value(0).to_owned()))
            }
        },
    };
    Ok(Arc::new((0..whole.len()).map(of_row).collect::<Result<StringArray>>()?))
}

/// How many units a second has.
pub(crate) fn units_of_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => NANOS_OF_SECOND,
    }
}

/// The date and time of a number of units since 1970.
fn local(unit: TimeUnit, value: i64) -> Option<NaiveDateTime> {
    let units = units_of_second(unit);
    let nanos = value.rem_euclid(units) * (NANOS_OF_SECOND / units);
    let moment = DateTime::from_timestamp(value.div_euclid(units), u32::try_from(nanos).ok()?)?;
    Some(moment.naive_utc())
}

fn of_duration(micros: i64) -> String {
    const MICROS_OF_DAY: i64 = 86_400_000_000;
    let days = i32::try_from(micros / MICROS_OF_DAY).unwrap_or(i32::MAX);
    Span(IntervalMonthDayNano::new(0, days, (micros % MICROS_OF_DAY) * 1_000)).to_string()
}

/// The text `2024-01-31 10:00:00.5` of a time; years before the first one end with `BC`.
struct Moment(NaiveDateTime);

impl Display for Moment {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self(at) = self;
        let year = at.year();
        let shown = if year > 0 { year } else { 1 - year };
        let since_midnight = i64::from(at.num_seconds_from_midnight()) * NANOS_OF_SECOND;
        let clock = TimeText(since_midnight + i64::from(at.nanosecond()));
        write!(f, "{shown:04}-{:02}-{:02} {clock}", at.month(), at.day())?;
        if year > 0 { Ok(()) } else { f.write_str(" BC") }
    }
}

/// The text `10:00:00.5` of a number of nanoseconds, which may be longer than a day.
struct TimeText(i64);

impl Display for TimeText {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0 / NANOS_OF_SECOND;
        let nanos = self.0 % NANOS_OF_SECOND;
        write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if nanos == 0 {
            return Ok(());
        }
        f.write_str(format!(".{nanos:09}").trim_end_matches('0'))
    }
}

/// The text `+01` or `-03:30` of an offset from UTC in seconds.
struct ZoneOffset(i32);

impl Display for ZoneOffset {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        let seconds = self.0.unsigned_abs();
        write!(f, "{sign}{:02}", seconds / 3600)?;
        match seconds % 3600 {
            0 => Ok(()),
            rest if rest % 60 == 0 => write!(f, ":{:02}", rest / 60),
            rest => write!(f, ":{:02}:{:02}", rest / 60, rest % 60),
        }
    }
}

/// The text `1 year 2 mons -3 days +04:05:06.5` of an interval: behind a negative part, a positive
/// one has its sign.
struct Span(IntervalMonthDayNano);

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let IntervalMonthDayNano { months, days, nanoseconds } = self.0;
        let mut separator = "";
        let mut is_behind_negative = false;
        for (count, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
            if count != 0 {
                let plural = if count == 1 { "" } else { "s" };
                let sign = if is_behind_negative && count > 0 { "+" } else { "" };
                write!(f, "{separator}{sign}{count} {unit}{plural}")?;
                (separator, is_behind_negative) = (" ", count < 0);
            }
        }
        if nanoseconds == 0 && !separator.is_empty() {
            return Ok(());
        }
        let sign = match nanoseconds {
            ..0 => "-",
            _ if is_behind_negative => "+",
            _ => "",
        };
        write!(f, "{separator}{sign}{}", TimeText(nanoseconds.saturating_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unit: TimeUnit, value: i64) -> String {
        Moment(local(unit, value).unwrap()).to_string()
    }

    #[test]
    fn times_are_written_as_in_postgresql() {
        assert_eq!(at(TimeUnit::Second, 0), "1970-01-01 00:00:00");
        assert_eq!(at(TimeUnit::Millisecond, -1), "1969-12-31 23:59:59.999");
        assert_eq!(at(TimeUnit::Nanosecond, 500_000_001), "1970-01-01 00:00:00.500000001");
        assert_eq!(at(TimeUnit::Second, 253_402_300_800), "10000-01-01 00:00:00");
        assert_eq!(at(TimeUnit::Second, -62_167_219_200), "0001-01-01 00:00:00 BC");
        assert!(local(TimeUnit::Second, i64::MAX).is_none());
        for (seconds, expected) in [
            (0, "+00"),
            (19_800, "+05:30"),
            (-12_600, "-03:30"),
            (-3_600, "-01"),
            (61, "+00:01:01"),
        ] {
            assert_eq!(ZoneOffset(seconds).to_string(), expected);
        }
    }

    #[test]
    fn intervals_are_written_as_in_postgresql() {
        for (months, days, nanos, expected) in [
            (0, 0, 0, "00:00:00"),
            (14, 3, 14_706_500_000_000, "1 year 2 mons 3 days 04:05:06.5"),
            (0, -1, 0, "-1 days"),
            (0, 1, -1_000_000_000, "1 day -00:00:01"),
            (0, -1, 3_600_000_000_000, "-1 days +01:00:00"),
            (-1, 1, 0, "-1 mons +1 day"),
            (0, 0, 90_000 * NANOS_OF_SECOND, "25:00:00"),
        ] {
            let span = Span(IntervalMonthDayNano::new(months, days, nanos));
            assert_eq!(span.to_string(), expected);
        }
        assert_eq!(of_duration(-90_000_000_000), "-1 days -01:00:00");
    }
}
