//! `timezone`, which `AT TIME ZONE` stands for: a time with a zone as it is shown in another zone, and
//! a time without one as it is meant in a zone.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use chrono::{DateTime, Days, LocalResult, NaiveDateTime, Offset, TimeZone};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use crate::sql_functions::column_function::{Plain, wrong};
use crate::sql_semantics::{cast_strictly, sql_name, units_of_second};

const UTC: &str = "+00:00";

pub(crate) fn all() -> [Plain; 1] {
    [Plain::new("timezone", (2, 2), returned, converted)]
}

/// Returns the unit of a type of times, and whether it has a zone. A date is the midnight of UTC.
fn times(of: &DataType) -> Option<(TimeUnit, bool)> {
    match of {
        DataType::Timestamp(unit, zone) => Some((*unit, zone.is_some())),
        DataType::Date32 | DataType::Date64 | DataType::Null => Some((TimeUnit::Microsecond, true)),
        text if text.is_string() => Some((TimeUnit::Microsecond, true)),
        _ => None,
    }
}

fn returned(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let [zone, of] = types else { return plan_err!("`timezone` takes two arguments") };
    if !zone.is_string() && !zone.is_null() {
        return plan_err!("a time zone is a text, not {}", sql_name(zone));
    }
    match times(of) {
        Some((unit, true)) => Ok(DataType::Timestamp(unit, None)),
        Some((unit, false)) => Ok(DataType::Timestamp(unit, Some(UTC.into()))),
        None => plan_err!("AT TIME ZONE takes a time, not {}", sql_name(of)),
    }
}

fn converted(columns: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let [zones, values] = columns else { return plan_err!("`timezone` takes two arguments") };
    let (unit, is_shown) = match returned {
        DataType::Timestamp(unit, zone) => (*unit, zone.is_none()),
        other => return plan_err!("`timezone` gives no {}", sql_name(other)),
    };
    let values = match is_shown {
        true => cast_strictly(values, &DataType::Timestamp(unit, Some(UTC.into())))?,
        false => Arc::clone(values),
    };
    let values = cast(&values, &DataType::Int64)?;
    let zones = cast(zones, &DataType::Utf8)?;
    let mut known: Option<(String, Tz)> = None;
    let pairs = zones.as_string::<i32>().iter().zip(values.as_primitive::<Int64Type>());
    let result = pairs.map(|(name, value)| {
        let (Some(name), Some(value)) = (name, value) else { return Ok(None) };
        if known.as_ref().is_none_or(|(last, _)| last != name) {
            known = Some((name.to_owned(), zone(name)?));
        }
        let zone = known.as_ref().map(|(_, zone)| *zone);
        zone.map(|zone| moved(value, unit, zone, is_shown)).transpose()
    });
    let result: PrimitiveArray<Int64Type> = result.collect::<Result<_>>()?;
    // Of whole numbers, the cast changes the type only.
    Ok(cast(&(Arc::new(result) as ArrayRef), returned)?)
}

fn zone(name: &str) -> Result<Tz> {
    const HINT: &str = "name a zone, such as 'Europe/Berlin', 'UTC' or 'Etc/GMT-5'";
    // PostgreSQL reads `+05:30` as west of Greenwich, others as east of it.
    if name.contains(['+', ':']) && !name.starts_with("Etc/") {
        return Err(wrong(format!("the offset '{name}' is not the name of a time zone"), HINT));
    }
    name.parse().map_err(|_| wrong(format!("there is no time zone '{name}'"), HINT))
}

/// Moves a time by a zone's offset: from UTC to the time that the zone's clocks show if `is_shown`,
/// and back otherwise.
fn moved(value: i64, unit: TimeUnit, zone: Tz, is_shown: bool) -> Result<i64> {
    let of_second = units_of_second(unit);
    let at = DateTime::from_timestamp(value.div_euclid(of_second), 0);
    let result = at.and_then(|at| {
        let seconds = match is_shown {
            true => zone.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc(),
            false => -offset_of_clock(zone, &at.naive_utc())?,
        };
        value.checked_add(i64::from(seconds) * of_second)
    });
    result.ok_or_else(|| wrong("a time is too far away for AT TIME ZONE".into(), "leave it out"))
}

/// The seconds by which a zone's clock that shows a time is ahead of UTC. As in PostgreSQL, a time
/// that clocks show twice is the later one, and one that they leave out is by the offset before.
fn offset_of_clock(zone: Tz, shown: &NaiveDateTime) -> Option<i32> {
    let offset = match zone.offset_from_local_datetime(shown) {
        LocalResult::Single(offset) => offset,
        LocalResult::Ambiguous(_, later) => later,
        LocalResult::None => {
            let before = shown.checked_sub_days(Days::new(1))?;
            zone.offset_from_local_datetime(&before).latest()?
        }
    };
    Some(offset.fix().local_minus_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(shown: &str) -> i32 {
        let zone: Tz = "America/New_York".parse().unwrap();
        offset_of_clock(zone, &shown.parse().unwrap()).unwrap()
    }

    #[test]
    fn times_that_clocks_leave_out_or_show_twice_are_postgresqls() {
        const STANDARD: i32 = -5 * 3600;
        assert_eq!(clock("2024-07-01T12:00:00"), STANDARD + 3600);
        assert_eq!(clock("2024-11-03T01:30:00"), STANDARD);
        assert_eq!(clock("2024-03-10T02:30:00"), STANDARD);
    }
}
